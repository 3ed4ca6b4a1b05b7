"""Thread of the controller, and its access to the metadata tree."""
