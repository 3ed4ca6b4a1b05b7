"""ElectLeaders: leader elections by the controller."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from odradek.base.errors import ErrorCode
from odradek.base.units import TopicName, TopicPartition
from odradek.client.admin.admin import CONTROLLER_MOVED, call_controller
from odradek.client.cluster.cluster import Cluster
from odradek.client.cluster.describe import check
from odradek.client.connection.broker_connection import Connection
from odradek.client.connection.client_errors import ErrorResponse, Unsupported, response_error
from odradek.wire.messages.elect_leaders import ElectLeadersRequest, ElectLeadersResponse, TopicPartitions

PREFERRED, UNCLEAN = 0, 1
UNCLEAN_VERSION_MIN = 1

Elections = Mapping[TopicPartition, ErrorResponse | None]


def elect_leaders(cluster: Cluster, partitions: Sequence[TopicPartition] | None, *, unclean: bool = False) -> Elections:
    """Elect leaders and return the error of each partition, or None if the election succeeded.

    Without `partitions` the request covers all partitions and omits those that need no election. With `unclean`, any
    replica may become leader of a partition without one; records that this replica does not have are lost.
    """
    topic_partitions = None
    if partitions is not None:
        by_topic: dict[str, list[int]] = {}
        for topic, index in partitions:
            by_topic.setdefault(topic, []).append(index)
        topic_partitions = [TopicPartitions(topic=topic, partitions=indexes) for topic, indexes in by_topic.items()]
    request = ElectLeadersRequest(
        election_type=UNCLEAN if unclean else PREFERRED,
        topic_partitions=topic_partitions,
        timeout_ms=cluster.config.request_timeout_ms,
    )

    def send_elect_leaders(controller: Connection, _: bool) -> Elections:
        if unclean and controller.version(ElectLeadersRequest) < UNCLEAN_VERSION_MIN:
            raise Unsupported(
                f"{controller.where} is older than Kafka 2.4: it supports only preferred leader elections"
            )
        response = controller.call(request, ElectLeadersResponse)
        check(response.error_code, "the election", None)
        results: dict[TopicPartition, ErrorResponse | None] = {}
        for topic in response.replica_election_results:
            for partition_result in topic.partition_result:
                partition = TopicPartition(TopicName(topic.topic), partition_result.partition_id)
                if partition_result.error_code == ErrorCode.NONE:
                    results[partition] = None
                    continue
                results[partition] = failure = response_error(
                    partition_result.error_code, str(partition), partition_result.error_message
                )
                if failure.code in CONTROLLER_MOVED:
                    raise failure
        return results

    found = call_controller(cluster, send_elect_leaders)
    cluster.metadata.forget({partition.topic for partition in found})
    return found
