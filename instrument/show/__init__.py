"""The only code that prints."""
