"""One data directory and all of its logs."""
