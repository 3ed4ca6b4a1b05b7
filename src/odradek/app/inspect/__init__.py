"""Offline inspection of log files."""
