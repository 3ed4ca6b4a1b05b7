"""Jepsen's workload for Kafka, over librdkafka: clients that append unique values, poll them, and record events.

`python -m workload ...` is one process with such clients, a thread for each; its history is for `checker`.
"""
