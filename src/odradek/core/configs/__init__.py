"""Kafka's configuration: every name a broker or a topic may set, with its type, default and rule."""
