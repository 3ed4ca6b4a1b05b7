"""Channels for requests to other brokers."""
