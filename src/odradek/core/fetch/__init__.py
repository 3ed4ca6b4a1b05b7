"""Fetch sessions, and reads that wait for a disk."""
