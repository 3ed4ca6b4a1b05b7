"""What coordinators of groups and transactions have in common: state that is kept in a topic, a shard per partition."""
