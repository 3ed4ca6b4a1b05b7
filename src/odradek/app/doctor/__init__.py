"""What a client would see of a cluster, step by step, and what to change: the command `odradek doctor`.

    examination ──> reach      names, addresses, connections
                ├─> speech     who answers, if it is not Kafka
                ├─> tls        what to do when TLS fails, if that is what the client is to speak
                ├─> clients    which clients have versions in common with the broker
                └─> cluster    metadata ──> advertised   each broker where it says it is
                                        ├─> topics       partitions without a leader, missing replicas
                                        └─> log_dirs     what is set aside, where the directories are here
    installation            which parts of the one that runs this are compiled

Each step gives findings; the first that leaves nothing to ask ends the examination.  Every wait has an end.
"""
