"""Transactions: who is in one, which partitions it has touched, and how it ends."""
