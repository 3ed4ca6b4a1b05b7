"""One partition of __consumer_offsets: its groups and their offsets.

Every persistent change goes through `write`: to the log first, then into the state, by the same path that loads the
log at startup. Activity between two writes (joins, heartbeats) is held in the groups only and lost in a crash.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from odradek.base.errors import ErrorCode, Refused
from odradek.core.coordinators.durable import PendingWrite
from odradek.core.coordinators.runtime import Runtime
from odradek.core.coordinators.state_log import NON_TRANSACTIONAL, ProducerIdAndEpoch, StateLog, StateRecord
from odradek.core.groups.shard.group import Group
from odradek.core.groups.shard.offsets import CommittedOffsets, GroupOffsets
from odradek.core.kernel.moment import Moment
from odradek.core.partition.leading import Leading
from odradek.record.internal.group_metadata import GroupMetadataValue
from odradek.record.internal.internal_codec import decode_key, decode_value, key_prefix
from odradek.record.internal.offset_commit_records import OffsetCommitKey, OffsetCommitValue

OFFSET_COMMIT_KEY = key_prefix(OffsetCommitKey)

Replay: TypeAlias = "Callable[[GroupShard, object, object | None], None]"
SimpleGroup: TypeAlias = "Callable[[str, GroupShard], Group]"


class GroupShard:
    """One shard.

    `replays` maps the class of a record's key to the function that applies it; `simple` creates a group of offsets.
    """

    def __init__(self, leading: Leading, runtime: Runtime, replays: dict[type, Replay], simple: SimpleGroup) -> None:
        protocol = runtime.protocol
        versions = {OffsetCommitValue: protocol.offset_value, GroupMetadataValue: protocol.group_value}
        self.log = StateLog(leading, versions, runtime)
        self.runtime = runtime
        self.groups: dict[str, Group] = {}
        self.offsets = GroupOffsets()
        self._replays = replays
        self._simple = simple

    def group(self, group_id: str) -> Group:
        """Return the group, or raise Refused(GROUP_ID_NOT_FOUND)."""
        group = self.groups.get(group_id)
        if group is None:
            raise Refused(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {group_id} not found.")
        return group

    def simple_group(self, group_id: str) -> Group:
        """Create a group that has only offsets in the log; it is not added to `groups`."""
        return self._simple(group_id, self)

    # Writes.

    def write(
        self, records: list[StateRecord], now: Moment, producer: ProducerIdAndEpoch = NON_TRANSACTIONAL
    ) -> PendingWrite:
        """Write records to the log, then apply them, or raise Refused and change nothing."""
        written = self.log.append(records, now, producer)
        for record in records:
            self._apply(record.key, record.value, producer)
        return written

    def write_offsets(
        self, batch: bytearray, group: str, offsets: CommittedOffsets, now: Moment, producer: ProducerIdAndEpoch
    ) -> PendingWrite:
        """Write a group's encoded offsets, then apply them, or raise Refused and change nothing."""
        written = self.log.append_encoded(batch, now)
        self.offsets.put_all(group, offsets, producer.id)
        return written

    def write_only(self, records: list[StateRecord], now: Moment) -> PendingWrite:
        """Write records to the log without changing the state, or raise Refused and write nothing."""
        return self.log.append(records, now)

    # Log replay.

    def replay(self, key: bytes, value: bytes | None, producer: ProducerIdAndEpoch) -> None:
        """Apply one record of the log; unknown record types are skipped, as in Kafka."""
        decoded = decode_key(key)
        if decoded is not None:
            self._apply(decoded, None if value is None else decode_value(decoded, value), producer)

    def is_replaceable(self, key: bytes) -> bool:
        return key.startswith(OFFSET_COMMIT_KEY)

    def replay_end(self, producer: ProducerIdAndEpoch, *, is_commit: bool) -> None:
        self.offsets.end_transaction(producer.id, is_commit=is_commit)

    def _apply(self, key: object, value: object | None, producer: ProducerIdAndEpoch) -> None:
        if isinstance(key, OffsetCommitKey):
            assert value is None or isinstance(value, OffsetCommitValue)
            self.offsets.replay(key, value, producer.id)
            return
        replay = self._replays.get(type(key))
        if replay is not None:
            replay(self, key, value)

    # The methods of a Shard.

    def on_loaded(self, now: Moment) -> None:
        for group_id in [one for one in self.offsets.groups() if one not in self.groups]:
            self.groups[group_id] = self.simple_group(group_id)
        for group in list(self.groups.values()):
            group.on_loaded(now)

    def on_unloaded(self) -> None:
        for group in self.groups.values():
            group.on_unloaded()
