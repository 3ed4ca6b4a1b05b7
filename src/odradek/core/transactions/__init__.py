"""Transactions: their producers, their partitions, and how they end."""
