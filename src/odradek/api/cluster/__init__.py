"""Requests between brokers and their controller."""
