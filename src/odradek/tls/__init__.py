"""TLS under Kafka's names: ssl.* configurations become contexts of Python's ssl module, for brokers and clients."""
