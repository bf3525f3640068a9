"""Runs, comparisons and landscapes as plain values: dictionaries, lists, numbers and texts, ready to be shown."""
