"""Clients' connections: accepting, receiving and securing them."""
