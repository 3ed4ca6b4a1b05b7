"""The metadata tree: ZooKeeper's semantics, on one SQLite file or on a ZooKeeper ensemble, in Kafka's layout."""
