"""What coordinators of groups and transactions have in common: their state is kept in a topic, a shard a partition."""
