"""Channels to other brokers."""
