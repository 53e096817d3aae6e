"""A run file as other people's readers see it."""
