"""The same requests to Odradek and to Apache Kafka 4.4.0, with their responses compared field by field."""
