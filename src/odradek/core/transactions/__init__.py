"""Transactions: their producers, their partitions and their completion."""
