"""The foundation of every layer: units, limits, errors; it imports nothing from the project."""
