"""Rows that are not in chunks yet: their memory, their journal, and their way into the file."""
