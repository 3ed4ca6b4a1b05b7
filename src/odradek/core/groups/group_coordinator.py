"""The group coordinator: finds a group's shard, creates groups and runs the periodic tasks."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from contextlib import suppress

from odradek.base.errors import ErrorCode, Refused
from odradek.base.units import TopicName
from odradek.core.coordinators.runtime import Runtime
from odradek.core.coordinators.shards import Load, Shards
from odradek.core.coordinators.state_log import ProducerIdAndEpoch
from odradek.core.groups import classic, consumer
from odradek.core.groups.expiry import Expiry
from odradek.core.groups.shard.group import Group
from odradek.core.groups.shard.group_shard import GroupShard, Replay
from odradek.core.groups.shard.offsets import tombstones
from odradek.core.kernel.cluster_view import CONSUMER_OFFSETS
from odradek.core.kernel.moment import Moment
from odradek.core.partition.leading import Leading

REPLAYS: dict[type, Replay] = {**classic.REPLAYS, **consumer.REPLAYS}

FORGOTTEN_AT_ONCE = 100  # Offsets of deleted topics; takes half a millisecond.


class GroupCoordinator:
    """The group coordinator of one broker."""

    def __init__(self, runtime: Runtime, request_load: Callable[[Load], None]) -> None:
        self.runtime = runtime
        self.shards = Shards(CONSUMER_OFFSETS, self._make, request_load, runtime)
        self._expiry = Expiry(runtime.configs)
        self.write_timeout_ms = runtime.configs.int("offsets.commit.timeout.ms")

    def _make(self, leading: Leading) -> GroupShard:
        return GroupShard(leading, self.runtime, REPLAYS, classic.ClassicGroup)

    def shard_of(self, group_id: str, *, may_be_empty: bool = False) -> GroupShard:
        """Return the group's shard.

        Raises Refused: INVALID_GROUP_ID for "" unless `may_be_empty` (no member joins a group named "", but offsets
        may be committed under that name), NOT_COORDINATOR, COORDINATOR_LOAD_IN_PROGRESS.
        """
        if not group_id and not may_be_empty:
            raise Refused(ErrorCode.INVALID_GROUP_ID, "the group id must not be empty")
        return self.shards.find_shard(group_id)

    def group(self, group_id: str) -> Group:
        """Return the group, or raise Refused, also with GROUP_ID_NOT_FOUND."""
        return self.shard_of(group_id).group(group_id)

    def topics_deleted(self, deleted: Collection[TopicName], now: Moment) -> Iterator[None]:
        """Delete the offsets of these topics in slices.

        Groups detect the change of topics by the version of the metadata view.
        """
        for shard in self.shards:
            for places in shard.offsets.places_of_topics(deleted):
                for start in range(0, len(places), FORGOTTEN_AT_ONCE):
                    with suppress(Refused):  # Remaining offsets expire eventually.
                        shard.write(tombstones(places[start : start + FORGOTTEN_AT_ONCE]), now)
                    yield
                yield
            yield

    def on_transaction_completed(self, index: int, producer: ProducerIdAndEpoch, *, is_commit: bool) -> None:
        """Commit or drop the offsets of a transaction after its marker is written to our state topic."""
        with suppress(Refused):  # A broker that loads the shard finds the marker in the log.
            self.shards.shard(index).replay_end(producer, is_commit=is_commit)

    def run_housekeeping(self, now: Moment) -> Iterator[None]:
        """Run the periodic tasks in slices, about once a second."""
        self.shards.run_housekeeping(now)
        yield from self._expiry.tick(self.shards, now)
