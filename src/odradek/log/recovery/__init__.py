"""Opening of a log after a clean or unclean shutdown."""
