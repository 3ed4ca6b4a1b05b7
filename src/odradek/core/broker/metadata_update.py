"""Application of the controller's UpdateMetadata to the view that clients' metadata is read from.

It follows the LeaderAndIsr of the same change, so what clients learn of already exists.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping

from odradek.base.units import NO_BROKER, NO_EPOCH, BrokerId, TopicName
from odradek.base.uuids import ZERO_UUID, Uuid
from odradek.core.controller.broker_request_batch import LEADER_DURING_DELETE, PartitionMetadata, UpdateMetadata
from odradek.core.kernel.cluster_view import ClusterView, PartitionInfo, TopicInfo

# Partition that the controller has not announced, below an announced one: none of its replicas has ever lived.
UNANNOUNCED = PartitionInfo(NO_BROKER, NO_EPOCH, (), ())

METADATA_UPDATED = "metadata updated"  # The key of requests that wait for an UpdateMetadata.

Overrides = Mapping[TopicName, Mapping[str, str]]  # Overrides of topics.


def is_known(view: ClusterView, name: TopicName, topic_id: Uuid) -> bool:
    """Return whether the view has this topic, and not a deleted one of the same name."""
    known = view.topics.get(name)
    return known is not None and (known.id == topic_id or ZERO_UUID in (known.id, topic_id))


def update_view(
    view: ClusterView, update: UpdateMetadata, controller: BrokerId, overrides: Overrides
) -> Generator[None, None, list[TopicName]]:
    """Apply live brokers and changed topics; yield after each topic, return the deleted topics.

    `overrides` are those of topics for which `is_known` is False.
    """
    view.controller = controller
    view.brokers = {broker.id: broker for broker in update.brokers}
    announced: dict[TopicName, dict[int, PartitionMetadata]] = {}
    for (name, index), metadata in update.partitions.items():
        announced.setdefault(name, {})[index] = metadata
    deleted = [name for name in view.topics if name not in announced] if update.is_full else []
    for name, partitions in announced.items():
        topic_id = update.topic_ids.get(name, ZERO_UUID)
        known = view.topics[name] if is_known(view, name, topic_id) else None
        if known is not None and known.id == ZERO_UUID:  # Created before topics had ids, and assigned one since.
            known = known._replace(id=topic_id)
        if all(partition.state.leader == LEADER_DURING_DELETE for partition in partitions.values()):
            deleted.append(name)
        else:
            view.put(_updated(known, name, topic_id, partitions, overrides))
        yield
    for name in deleted:
        view.remove(name)
        yield
    return deleted


def _updated(
    known: TopicInfo | None,
    name: TopicName,
    topic_id: Uuid,
    announced: Mapping[int, PartitionMetadata],
    overrides: Overrides,
) -> TopicInfo:
    partitions = [] if known is None else list(known.partitions)
    partitions += [UNANNOUNCED] * (max(announced) + 1 - len(partitions))
    for index, (state, replicas, offline) in announced.items():
        partitions[index] = PartitionInfo.of(state, replicas, offline)
    if known is None:
        return TopicInfo(name, topic_id, tuple(partitions), overrides.get(name, {}))
    return known._replace(partitions=tuple(partitions))
