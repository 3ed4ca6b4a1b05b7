"""One partition's bytes on disk, in Kafka's own files."""
