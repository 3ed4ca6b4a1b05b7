"""The controller's thread, and its access to the metadata tree."""
