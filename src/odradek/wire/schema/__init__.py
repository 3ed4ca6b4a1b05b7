"""The class body is the schema: message classes, and the readers and writers compiled from them."""
