"""Log lines and the request log."""
