"""The checker of Jepsen's Kafka workload, written anew: from a history of clients' operations to its anomalies.

Unique values are appended to partitions (keys) and polled back.  Nothing here knows Kafka or waits for anything:
`history` says what a history is, `observed` what can be known of the logs from it, `values`, `order` and `cycles` look
for anomalies, and `verdict.check` says which of those found break a promise.
"""
