"""Segments, their indexes and checkpoints."""
