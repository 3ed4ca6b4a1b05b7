"""Producers, transactions and leader epochs of one log."""
