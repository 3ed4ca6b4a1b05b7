"""Configurations and log directories."""
