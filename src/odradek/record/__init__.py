"""Record formats of every generation, without I/O."""
