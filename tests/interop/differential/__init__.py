"""The same requests to Odradek and to Apache Kafka 4.4.0, and their answers, field by field."""
