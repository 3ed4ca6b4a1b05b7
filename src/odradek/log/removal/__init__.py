"""Deletion and replacement of segment files."""
