"""Core of the broker: its replicas, its configuration, and the controller's requests to it."""
