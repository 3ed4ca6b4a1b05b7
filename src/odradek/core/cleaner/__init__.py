"""Log cleaner: choice of the next log, and compactions on request."""
