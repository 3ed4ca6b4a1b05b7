"""Scenarios by subject; `everything` has all of them in the order in which they are played."""
