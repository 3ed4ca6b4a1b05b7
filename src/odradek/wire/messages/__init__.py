"""The messages, one file per API.  Field by field they are Kafka's, in snake_case; `wire/catalog.py` lists them."""
