"""Bytes to frames to file and back; knows no protobuf."""
