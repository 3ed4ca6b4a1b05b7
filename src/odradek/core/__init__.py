"""Decisions, as pure state machines: bytes and time come in as arguments, answers and effects go out as values."""
