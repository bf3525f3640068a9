"""Saved weights -> directions -> grid of losses -> surface."""
