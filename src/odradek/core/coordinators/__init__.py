"""The common part of group and transaction coordinators: state in a topic, one shard per partition."""
