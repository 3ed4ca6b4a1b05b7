"""Consumer groups: their members, assignments and committed offsets."""
