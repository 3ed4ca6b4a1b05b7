"""One partition: its log's positions, its leader's and followers' state, and its in-sync replicas."""
