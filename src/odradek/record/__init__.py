"""Record formats of every generation.  No I/O."""
