"""Offline looks into log files."""
