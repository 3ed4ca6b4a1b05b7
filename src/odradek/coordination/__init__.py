"""The metadata tree, with ZooKeeper's semantics."""
