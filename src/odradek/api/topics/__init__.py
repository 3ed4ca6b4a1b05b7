"""Topics: metadata, creation, growth and deletion."""
