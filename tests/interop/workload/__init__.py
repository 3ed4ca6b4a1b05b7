"""The workload of Jepsen for Kafka, over librdkafka: clients that append unique values, poll them, and take notes.

`python -m workload ...` is one process of such clients, a thread for each; its history is for `checker`.
"""
