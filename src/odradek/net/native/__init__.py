"""Compiled, and left out where there is no C compiler: net/moving.py says what happens then."""
