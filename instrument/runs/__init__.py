"""Runs as a reader sees them: their series, lineage, starts and damage, out of event files and ring files."""
