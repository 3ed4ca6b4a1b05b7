"""The messages, one file per API, with Kafka's fields in snake_case; `wire/catalog.py` lists them."""
