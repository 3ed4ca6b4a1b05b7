"""TLS for brokers and clients: contexts of Python's ssl module from Kafka's ssl.* configurations."""
