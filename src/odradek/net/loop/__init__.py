"""Event loop: its threads, turns, slices and readers."""
