"""Administrative requests."""
