"""ISRs written to the tree by leaders, and notifications, before Kafka 2.7-IV2 (ReplicationUtils).

Each state is written if its znode has the version known to the leader, which is the partition epoch. All calls block.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import partial

from odradek.base.units import BrokerId, TopicPartition
from odradek.coordination import tree_layout as layout
from odradek.coordination.fields import readable
from odradek.coordination.partition_states import decoded, encoded
from odradek.coordination.tree import BadVersion, MultiFailed, NoNode, SetData, Stat, Tree
from odradek.core.kernel.cluster_view import LeaderAndIsr

PARTITIONS_PER_NODE = 2_000  # Names are up to 249 bytes long, and a node has room for a megabyte.


def write(tree: Tree, states: Mapping[TopicPartition, LeaderAndIsr]) -> dict[TopicPartition, LeaderAndIsr]:
    """Write states and return the current ones of partitions still led in the same epoch.

    A returned state is the written one with its new partition epoch, or an earlier write of this leader whose answer
    was lost. Partitions with a new leader or leader epoch and deleted partitions are omitted.
    """
    written: dict[TopicPartition, LeaderAndIsr] = {}
    left = dict(states)
    while left:
        paths = {partition: layout.partition_state(*partition) for partition in left}
        changes = [
            SetData(paths[partition], encoded(state), state.partition_epoch) for partition, state in left.items()
        ]
        try:
            results = tree.multi(changes)
        except MultiFailed as failed:
            if not isinstance(failed.error, BadVersion | NoNode):
                raise failed.error from failed
        else:
            for (partition, state), result in zip(left.items(), results, strict=True):
                assert isinstance(result, Stat), "the operation was a SetData"
                written[partition] = state._replace(partition_epoch=result.version)
            return written
        # Nothing was written: at least one of them has another version now, and the others are retried without it.
        for (partition, path), node in zip(paths.items(), tree.get_all(list(paths.values())), strict=True):
            version = -1 if node is None else node[1].version
            if version == left[partition].partition_epoch:
                continue
            state = left.pop(partition)
            found = None if node is None else readable(path, partial(decoded, version=version), node[0])
            if found is not None and _is_same_leadership(found, state):
                written[partition] = found
    return written


def _is_same_leadership(found: LeaderAndIsr, state: LeaderAndIsr) -> bool:
    """Return whether only the leader itself has changed the state; the controller raises the epoch.

    The state need not equal the one to be written. A leader waiting for notice of another state would wait forever
    (KAFKA-2729). The writer's controller epoch is irrelevant.
    """
    is_newer = found.partition_epoch > state.partition_epoch
    return is_newer and (found.leader, found.leader_epoch) == (state.leader, state.leader_epoch)


def partitions_relying_on(tree: Tree, broker: BrokerId, partitions: Iterable[TopicPartition]) -> list[TopicPartition]:
    """Return the partitions with this broker and others in the ISR, where it may be elected.

    Omits topics being deleted, whose ISRs no longer change.
    """
    marked = set(tree.children(layout.DELETE_TOPICS))
    names = [partition for partition in partitions if partition.topic not in marked]
    found = []
    for partition, node in zip(
        names, tree.get_all([layout.partition_state(*partition) for partition in names]), strict=True
    ):
        if node is None:
            continue
        decode = partial(decoded, version=node[1].version)
        state = readable(layout.partition_state(*partition), decode, node[0])
        if state is not None and broker in state.isr and len(state.isr) > 1:
            found.append(partition)
    return found


def notify(tree: Tree, partitions: Sequence[TopicPartition]) -> None:
    """Notify the controller to read the states of partitions and inform all brokers; repeats are harmless."""
    for first in range(0, len(partitions), PARTITIONS_PER_NODE):
        data = layout.encode_partitions(partitions[first : first + PARTITIONS_PER_NODE])
        tree.create(f"{layout.ISR_CHANGES}/{layout.ISR_CHANGE_PREFIX}", data, sequential=True)
