"""server.properties and the settings that follow from it."""
