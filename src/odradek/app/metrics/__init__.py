"""Metrics and their HTTP endpoint."""
