"""The ring buffer as a file: its format, who lives, and what a ring without living processes still holds."""
