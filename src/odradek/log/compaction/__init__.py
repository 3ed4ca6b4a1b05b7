"""One pass of compaction over one log."""
