"""The log cleaner: which log is cleaned next, and compactions on request."""
