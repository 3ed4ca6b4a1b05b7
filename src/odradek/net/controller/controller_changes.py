"""Changes of the metadata tree that only the controller may make.

Each change is one multi that begins with a check of /controller_epoch, so the tree rejects it once another broker is
elected. A change may be repeated, since its response can be lost; a repetition skips operations that are already done.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import TypeVar

from odradek.base.units import TopicName, TopicPartition
from odradek.base.uuids import ZERO_UUID, Uuid
from odradek.coordination import tree_layout as layout
from odradek.coordination.fields import readable
from odradek.coordination.partition_states import encoded
from odradek.coordination.tree import (
    BadVersion,
    Check,
    Create,
    Delete,
    MultiFailed,
    NodeExists,
    NoNode,
    NotEmpty,
    Operation,
    Result,
    SetData,
    Stat,
    Tree,
    children_if_there,
)
from odradek.core.controller.controller_steps import Deposed, WriteStatesResult
from odradek.core.kernel.cluster_view import LeaderAndIsr, TopicAssignment

_LOG = logging.getLogger(__name__)

OPERATIONS_PER_MULTI = 500  # About 100 KB; ZooKeeper accepts 1 MB.
BYTES_PER_MULTI = 500_000
_SKIPPED = (BadVersion, NoNode, NodeExists, NotEmpty)

T = TypeVar("T")


class ControllerChanges:
    """Changes of one broker in the epoch of its election; methods raise Deposed after that epoch."""

    def __init__(self, tree: Tree) -> None:
        self._tree = tree
        self._epoch = 0
        self._epoch_version = -1  # Version of /controller_epoch.

    def begin_epoch(self, epoch: int, version: int) -> None:
        """Use the epoch of an election, and the version of the znode that contains it."""
        self._epoch, self._epoch_version = epoch, version

    def write(self, states: Mapping[TopicPartition, LeaderAndIsr], *, creates: bool) -> WriteStatesResult:
        """Write states whose znodes have the state's partition epoch; with `creates`, create znodes."""
        if creates:
            self._make_folders(states)
        pending = [(partition, state._replace(controller_epoch=self._epoch)) for partition, state in states.items()]
        written = WriteStatesResult({}, [])
        for first in range(0, len(pending), OPERATIONS_PER_MULTI):
            self._write(pending[first : first + OPERATIONS_PER_MULTI], written, creates=creates)
        return written

    def _write(
        self, pending: Sequence[tuple[TopicPartition, LeaderAndIsr]], written: WriteStatesResult, *, creates: bool
    ) -> None:
        """Write all states at once, or each half separately, so that a stale state does not block others."""
        try:
            results = self._change(
                [_write_operation(partition, state, creates=creates) for partition, state in pending]
            )
        except (BadVersion, NoNode, NodeExists):
            if len(pending) == 1:
                written.stale.append(pending[0][0])
                return
            middle = len(pending) // 2
            self._write(pending[:middle], written, creates=creates)
            self._write(pending[middle:], written, creates=creates)
            return
        for (partition, state), result in zip(pending, results, strict=True):
            version = result.version if isinstance(result, Stat) else 0
            written.states[partition] = state._replace(partition_epoch=version)

    def _make_folders(self, partitions: Iterable[TopicPartition]) -> None:
        """Create missing parent nodes of partition states, for topics that exist."""
        missing = dict.fromkeys(partitions)
        for partition in with_folders(self._tree, missing):
            del missing[partition]
        topics = dict.fromkeys(layout.partitions(partition.topic) for partition in missing)
        self._apply_each([Create(path) for path in topics if self._tree.exists(path) is None])
        self._apply_each([Create(layout.partition(*partition)) for partition in missing])

    def assign_topic_ids(self, ids: Mapping[TopicName, Uuid]) -> Mapping[TopicName, TopicAssignment]:
        """Write ids into assignments that have none, and return all assignments as they are afterwards."""
        identified: dict[TopicName, TopicAssignment] = {}
        left = list(ids)
        while left:  # Repeat until no assignment changes between its read and its write.
            nodes = self._tree.get_all([layout.topic(name) for name in left])
            writes: dict[TopicName, SetData] = {}
            for name, node in zip(left, nodes, strict=True):
                assignment = None if node is None else readable(layout.topic(name), layout.decode_topic, node[0])
                if node is None or assignment is None:
                    continue
                if assignment.topic_id != ZERO_UUID:
                    identified[name] = assignment
                else:
                    data = layout.encode_topic(assignment._replace(topic_id=ids[name]))
                    writes[name] = SetData(layout.topic(name), data, node[1].version)
            self._apply_each(list(writes.values()))
            left = list(writes)
        return identified

    def remove_topic(self, name: TopicName) -> None:
        """Delete all znodes of a topic in pieces, children first, and its deletion mark last.

        A successor continues the deletion as long as the mark exists. The mark is deleted together with the topic.
        Otherwise, a topic recreated at once could be mistaken for the deleted one, or lose its configuration.
        """
        topic = layout.topic(name)
        self.delete(self._below(topic))
        paths = (topic, layout.config(layout.TOPIC_CONFIGS, name), layout.delete_topic(name))
        existing = [path for path in paths if self._tree.exists(path) is not None]
        try:
            self._change([Delete(path) for path in existing])
        except NotEmpty:
            _LOG.error("failed to delete %s: another client creates znodes below it", topic)
        except NoNode:  # Someone deletes it by hand.
            self.delete(existing)

    def _below(self, path: str) -> list[str]:
        """Return all nodes below a path, children first."""
        below: list[str] = []
        for name in children_if_there(self._tree, path):
            below += (*self._below(f"{path}/{name}"), f"{path}/{name}")
        return below

    def delete(self, paths: Iterable[str]) -> None:
        """Delete nodes in order; skip nodes that do not exist or have children."""
        self._apply_each([Delete(path) for path in paths])

    def _apply_each(self, operations: Sequence[Operation]) -> None:
        """Execute operations in batches, and skip operations that fail."""
        for batch in _batches(operations):
            try:
                self._change(batch)
            except _SKIPPED:
                for operation in batch:
                    with suppress(*_SKIPPED):
                        self._change([operation])

    def _change(self, operations: Sequence[Operation]) -> Sequence[Result]:
        """Execute all operations or none; raise the error of the operation that failed."""
        assert self._epoch_version >= 0, "only an elected controller changes metadata"
        try:
            return self._tree.multi([Check(layout.CONTROLLER_EPOCH, self._epoch_version), *operations])[1:]
        except MultiFailed as failed:
            if failed.index == 0:
                raise Deposed from failed
            raise failed.error from failed


def _batches(operations: Iterable[Operation]) -> Iterator[list[Operation]]:
    """Yield the operations in order, in batches that fit into one multi."""
    batch: list[Operation] = []
    size = 0
    for operation in operations:
        added = len(operation.data) if isinstance(operation, Create | SetData) else 0
        if batch and (len(batch) == OPERATIONS_PER_MULTI or size + added > BYTES_PER_MULTI):
            yield batch
            batch, size = [], 0
        batch.append(operation)
        size += added
    if batch:
        yield batch


def with_folders(tree: Tree, partitions: Iterable[TopicPartition]) -> Iterator[TopicPartition]:
    """Yield the partitions that have a node.

    A new topic has none of them, which takes one request instead of many.
    """
    of_topic: dict[TopicName, list[TopicPartition]] = {}
    for partition in partitions:
        of_topic.setdefault(partition.topic, []).append(partition)
    for name, topic_partitions in of_topic.items():
        existing = set(children_if_there(tree, layout.partitions(name)))
        yield from (partition for partition in topic_partitions if str(partition.partition) in existing)


def _write_operation(partition: TopicPartition, state: LeaderAndIsr, *, creates: bool) -> Operation:
    path = layout.partition_state(*partition)
    data = encoded(state)
    return Create(path, data) if creates else SetData(path, data, state.partition_epoch)
