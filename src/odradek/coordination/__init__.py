"""The metadata tree: ZooKeeper semantics in Kafka's layout, on one SQLite file or on ZooKeeper."""
