"""Starting, supervising and stopping brokers."""
