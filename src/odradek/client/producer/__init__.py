"""Producing: batches, idempotence and transactions."""
