"""server.properties and the settings derived from it."""
