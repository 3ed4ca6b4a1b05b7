"""Step-by-step diagnosis of a cluster as a client sees it, with advice: the command `odradek doctor`.

    examination ──> reach                names, addresses, connections
                    ├─> speech               identifies the peer if it is not plaintext Kafka
                    ├─> tls_findings         advice after a failed TLS handshake, for clients that use TLS
                    ├─> client_versions      clients that share API versions with the broker
                    └─> described_cluster    metadata ──> advertised        each broker at its advertised address
                                                      ├─> topic_findings    leaderless partitions, missing replicas
                                                      └─> set_aside_logs    quarantined files in local log directories
    installation            compiled parts of the installation that runs this command

Each step yields findings. The examination ends at the first finding that leaves nothing to check. Every wait is
bounded.
"""
