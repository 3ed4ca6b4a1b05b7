"""A thin, blocking Kafka client on wire and record."""
