"""Plans for new topics, and the assignment of their replicas."""
