"""The shard of one partition of __consumer_offsets: its groups and their committed offsets."""
