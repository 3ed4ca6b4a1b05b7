"""The event loop: its threads, turns, slices and readers."""
