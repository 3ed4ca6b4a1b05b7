"""Syncs, open files, and moves between log directories."""
