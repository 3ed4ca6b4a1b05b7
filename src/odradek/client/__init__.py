"""A thin, blocking Kafka client on top of wire and record."""
