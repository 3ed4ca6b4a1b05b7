"""Client connections: accepting, receiving and encryption."""
