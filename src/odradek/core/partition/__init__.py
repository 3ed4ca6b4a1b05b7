"""State of one partition: log positions, leader and follower state, and in-sync replicas."""
