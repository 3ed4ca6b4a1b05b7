"""Kafka's configuration: every key of a broker or a topic, with its type, default and rule."""
