"""The controller's UpdateMetadata becomes what this broker knows of the cluster, and tells its clients.

It comes behind the LeaderAndIsr of the same change: what clients hear of is there.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping

from odradek.base.units import NO_BROKER, NO_EPOCH, BrokerId, TopicName
from odradek.base.uuids import ZERO_UUID, Uuid
from odradek.core.controller.broker_request_batch import LEADER_DURING_DELETE, PartitionMetadata, UpdateMetadata
from odradek.core.kernel.cluster_view import ClusterView, PartitionInfo, TopicInfo

# A partition that the controller has not told of, below one that it has: none of its replicas has lived yet.
UNTOLD = PartitionInfo(NO_BROKER, NO_EPOCH, (), ())

METADATA_UPDATED = "metadata updated"  # The key of who waits for what an UpdateMetadata tells.

Overrides = Mapping[TopicName, Mapping[str, str]]  # What is set on topics.


def is_known(view: ClusterView, name: TopicName, topic_id: Uuid) -> bool:
    """True if the view has this topic, and not one of the same name that was deleted before it was made."""
    known = view.topics.get(name)
    return known is not None and (known.id == topic_id or ZERO_UUID in (known.id, topic_id))


def update_view(
    view: ClusterView, update: UpdateMetadata, controller: BrokerId, overrides: Overrides
) -> Generator[None, None, list[TopicName]]:
    """Takes in who lives, and topics that have changed.  Yields after each topic, returns the topics that are gone.

    `overrides` are those of topics that are not in the view, as far as `is_known` tells.
    """
    view.controller = controller
    view.brokers = {one.id: one for one in update.brokers}
    told: dict[TopicName, dict[int, PartitionMetadata]] = {}
    for (name, index), metadata in update.partitions.items():
        told.setdefault(name, {})[index] = metadata
    gone = [name for name in view.topics if name not in told] if update.is_full else []
    for name, partitions in told.items():
        topic_id = update.topic_ids.get(name, ZERO_UUID)
        known = view.topics[name] if is_known(view, name, topic_id) else None
        if known is not None and known.id == ZERO_UUID:  # Made before there were ids, and given one by now.
            known = known._replace(id=topic_id)
        if all(one.state.leader == LEADER_DURING_DELETE for one in partitions.values()):
            gone.append(name)
        else:
            view.put(_updated(known, name, topic_id, partitions, overrides))
        yield
    for name in gone:
        view.remove(name)
        yield
    return gone


def _updated(
    known: TopicInfo | None,
    name: TopicName,
    topic_id: Uuid,
    told: Mapping[int, PartitionMetadata],
    overrides: Overrides,
) -> TopicInfo:
    partitions = [] if known is None else list(known.partitions)
    partitions += [UNTOLD] * (max(told) + 1 - len(partitions))
    for index, (state, replicas, offline) in told.items():
        partitions[index] = PartitionInfo.of(state, replicas, offline)
    if known is None:
        return TopicInfo(name, topic_id, tuple(partitions), overrides.get(name, {}))
    return known._replace(partitions=tuple(partitions))
