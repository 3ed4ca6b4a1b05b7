"""Consuming: offsets, fetches and group membership."""
