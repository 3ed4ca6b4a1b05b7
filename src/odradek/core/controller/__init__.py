"""The controller's decisions, as pure functions and state machines."""
