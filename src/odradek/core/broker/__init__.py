"""The broker: its replicas, its configuration, and what the controller tells it."""
