"""Fetchers with a leader that loses requests, responses and sessions: in the end every follower has all records.

The fetchers, the followers and their logs are real; the leader keeps lists of batches and a fetch session for each
fetcher (KIP-227), and rejects what such a session does not allow.
"""

from __future__ import annotations

from random import Random

import pytest
from simdisk import SimDisk
from simreplicas import CONFIG, CONFIGS, UNTOLD, contents

from odradek.base.errors import ErrorCode
from odradek.base.units import BrokerId, LeaderEpoch, Offset, TimestampMs, TopicName, TopicPartition
from odradek.core.fetch.fetch_sessions import SESSIONLESS
from odradek.core.kernel.cluster_view import PartitionInfo
from odradek.core.kernel.moment import Moment
from odradek.core.kernel.timers import Timers
from odradek.core.partition.partition import Partition
from odradek.core.replication import replica_fetcher_manager as replica_fetchers
from odradek.core.replication.leader_endpoint import EpochEnd, Fetch, Fetched
from odradek.core.replication.replica_fetcher_manager import (
    LeaderEpochsRequest,
    ReplicaFetch,
    ReplicaFetcher,
    ReplicaFetcherManager,
)
from odradek.log.log.log import Log
from odradek.record.builder import encode_batch
from odradek.record.record_batch import Batch
from support.seeds import seeds
from support.without_followers import MANAGER

LEADER, EPOCH, NOW = BrokerId(1), LeaderEpoch(0), TimestampMs(1_700_000_000_000)
NAMES = [TopicPartition(TopicName(topic), index) for topic in ("a", "b") for index in range(4)]


class Leader:
    """The records of one leader, and the session of one fetcher."""

    def __init__(self, random: Random, same: Leader | None = None) -> None:
        """Create a leader; `same` has the same records, and the session of another fetcher."""
        self.random = random
        self.batches: dict[TopicPartition, list[bytes]] = {name: [] for name in NAMES} if same is None else same.batches
        self.ends = dict.fromkeys(NAMES, 0) if same is None else same.ends
        self.session_id, self.session_epoch = SESSIONLESS, 0
        self.session: dict[TopicPartition, int] = {}
        self.named_last = 0

    def append(self, name: TopicPartition) -> None:
        raw = bytearray(encode_batch([(None, self.random.randbytes(20), (), NOW)] * self.random.randint(1, 3)))
        batch = Batch.checked(memoryview(raw))
        batch.stamp(Offset(self.ends[name]), EPOCH)
        self.batches[name].append(bytes(batch.view))
        self.ends[name] = batch.next_offset

    def fetch(self, request: ReplicaFetch) -> ErrorCode | list[tuple[TopicPartition, Fetched]]:
        if request.session_epoch == 0:
            self.session_id = self.random.choice([SESSIONLESS, 1, 2, 3])
            self.session_epoch, self.session = 0, {}
            assert not request.forgotten
        elif request.session_id != self.session_id or self.session_id == SESSIONLESS:
            return ErrorCode.FETCH_SESSION_ID_NOT_FOUND
        elif request.session_epoch != self.session_epoch:
            return ErrorCode.INVALID_FETCH_SESSION_EPOCH
        self.session_epoch += 1
        for one in request.forgotten:
            assert self.session.pop(one.name, None) is not None, "only what is known is forgotten"
        for one in request.named:
            assert isinstance(one.request, Fetch)
            self.session[one.name] = one.request.offset
        self.named_last = len(request.named)
        found = [(name, self._read(name, offset)) for name, offset in self.session.items()]
        is_full = request.session_epoch == 0
        return [(name, answer) for name, answer in found if is_full or answer.records or answer.error]

    def _read(self, name: TopicPartition, offset: int) -> Fetched:
        if self.random.random() < 0.05:
            return Fetched(ErrorCode.NOT_LEADER_OR_FOLLOWER, memoryview(b""))
        left = [raw for raw in self.batches[name] if Batch.trusted(memoryview(raw)).base_offset >= offset]
        records = b"".join(left[: self.random.randint(1, 3)])
        return Fetched(ErrorCode.NONE, memoryview(records), Offset(self.ends[name]), Offset(0))


class World:
    """One broker with its followers."""

    def __init__(self, random: Random, per_leader: int = 1) -> None:
        self.random = random
        self.leader = Leader(random)
        self.leaders: dict[ReplicaFetcher, Leader] = {}  # The same leader, as each fetcher knows it.
        self.per_leader = per_leader
        self.timers = Timers()
        self.fetchers = ReplicaFetcherManager(
            self.timers, per_leader=per_leader, backoff_ms=100, diverging_in_fetch=True
        )
        self.steady = 0
        self.partitions = {name: self._partition(name) for name in NAMES}
        self.followed: set[TopicPartition] = set()
        self.requests = 0

    def _partition(self, name: TopicPartition) -> Partition:
        disk, path = SimDisk(), f"/{name.topic}-{name.partition}"
        disk.make_directory(path)
        log = Log.open(disk, path, CONFIG, NOW)
        partition = Partition(name, log, UNTOLD, CONFIGS, MANAGER)
        partition.follow(PartitionInfo(LEADER, EPOCH, (), ()))
        return partition

    @property
    def now(self) -> Moment:
        return Moment(NOW, self.steady)

    def toggle(self, name: TopicPartition) -> None:
        if name in self.followed:
            self.followed.remove(name)
            self.fetchers.forget(name)
        else:
            self.followed.add(name)
            self.fetchers.follow(self.partitions[name], self.now)

    def step(self, *, loses: bool) -> bool:
        """Handle one request if there is one, or else advance time; return whether there was one."""
        taken = self.fetchers.take_requests()
        assert loses or len({fetcher.number for fetcher, _ in taken}) == len(taken), "one of each number"
        for fetcher, request in taken:
            self.requests += 1
            assert fetcher.next_request() is None, "one at a time"
            if loses:
                self._change_partitions(0.2, 0.1)
            leader = self._leader_of(fetcher)
            answer = leader.fetch(request) if isinstance(request, ReplicaFetch) else []
            if loses and self.random.random() < 0.1:
                answer = ErrorCode.NETWORK_EXCEPTION
            if isinstance(answer, ErrorCode):
                fetcher.failed(request, answer, self.now)
            elif isinstance(request, ReplicaFetch):
                for _ in fetcher.fetched(request, leader.session_id, answer, self.now):
                    if loses:
                        self._change_partitions(0.1, 0.05)
            else:
                assert isinstance(request, LeaderEpochsRequest)
                for _ in fetcher.epochs_ended(
                    request, [(n, ErrorCode.NONE, EpochEnd(EPOCH, Offset(0))) for n in request.named], self.now
                ):
                    pass
        self.steady += 10
        self.timers.tick(self.now)
        return bool(taken)

    def _leader_of(self, fetcher: ReplicaFetcher) -> Leader:
        if self.per_leader == 1:
            return self.leader
        if fetcher not in self.leaders:
            self.leaders[fetcher] = Leader(self.random, self.leader)
        return self.leaders[fetcher]

    def _change_partitions(self, toggles: float, resizes: float) -> None:
        while self.random.random() < toggles:
            self.toggle(self.random.choice(NAMES))
        if self.random.random() < resizes:
            self.resize(self.random.randint(1, self.per_leader))

    def resize(self, count: int) -> None:
        """Change num.replica.fetchers; partitions come and go at the same time."""
        for _ in self.fetchers.resize(count, self.now):
            self.toggle(self.random.choice(NAMES))


@pytest.mark.parametrize("per_leader", [1, 3])
@pytest.mark.parametrize("seed", seeds(range(60)))
def test_fetchers_fetch_all_records_in_the_end(seed: int, per_leader: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(replica_fetchers, "MOVED_PER_SLICE", 2)
    random = Random(seed)
    world = World(random, per_leader)
    for _ in range(random.randint(20, 120)):
        if random.random() < 0.5:
            world.leader.append(random.choice(NAMES))
        if random.random() < 0.2:
            world.toggle(random.choice(NAMES))
        if random.random() < 0.05:
            world.leader.session_id = SESSIONLESS
        world.step(loses=True)
    for name in NAMES:
        if name not in world.followed:
            world.toggle(name)
    world.requests = 0
    while not all(world.partitions[name].log.end_offset == world.leader.ends[name] for name in NAMES):
        world.step(loses=False)
        assert world.requests < 2000, "it gets on"
    for name in NAMES:
        assert list(contents(world.partitions[name].log).values()) == world.leader.batches[name]
        assert world.partitions[name].positions.high_watermark == world.leader.ends[name]


def test_fenced_partitions_are_followed_again() -> None:
    """Partitions resume one by one, while a fetcher without any makes room for another one for the same leader."""
    world = World(Random(2))
    for name in NAMES:
        world.toggle(name)
    ((fetcher, request),) = world.fetchers.take_requests()
    assert isinstance(request, ReplicaFetch)
    fenced = Fetched(ErrorCode.FENCED_LEADER_EPOCH, memoryview(b""))
    for _ in fetcher.fetched(request, SESSIONLESS, [(name, fenced) for name in NAMES], world.now):
        pass
    assert not world.fetchers.take_requests()
    for name in NAMES:
        world.fetchers.follow(world.partitions[name], world.now)
    ((_, request),) = world.fetchers.take_requests()
    assert isinstance(request, ReplicaFetch)
    assert [one.name for one in request.named] == NAMES


def test_an_idle_session_names_nothing() -> None:
    random = Random(1)
    world = World(random)
    for name in NAMES:
        world.toggle(name)
        world.leader.append(name)
    random.random = lambda: 1.0  # type: ignore[method-assign]  # No errors from here on.
    while world.leader.session_id == SESSIONLESS or world.leader.session_epoch < 4:
        world.step(loses=False)
    world.step(loses=False)
    assert world.leader.named_last == 0
    world.leader.append(NAMES[3])
    world.step(loses=False)
    world.step(loses=False)
    assert world.leader.named_last == 1, "of the one that has something new its next offset"


def test_a_newly_registered_leader_gets_a_full_fetch() -> None:
    """This holds even during a fetch, whose response may come from the former registration."""
    world = World(Random(1))
    for name in NAMES:
        world.fetchers.follow(world.partitions[name], world.now)
    ((fetcher, first),) = world.fetchers.take_requests()
    assert isinstance(first, ReplicaFetch)
    world.fetchers.renew_sessions()
    for _ in fetcher.fetched(first, 7, [], world.now):
        pass
    second = fetcher.next_request()
    assert isinstance(second, ReplicaFetch)
    assert [one.name for one in second.named] == NAMES and second.session_id == SESSIONLESS
    for _ in fetcher.fetched(second, 8, [], world.now):
        pass
    third = fetcher.next_request()
    assert isinstance(third, ReplicaFetch)
    assert (third.session_id, third.named) == (8, []), "once"


def named_by(world: World) -> dict[int, list[TopicPartition]]:
    """Return the partitions that each fetcher requests next, by its number."""
    found = {}
    for fetcher, request in world.fetchers.take_requests():
        assert isinstance(request, ReplicaFetch)
        found[fetcher.number] = [one.name for one in request.named]
        fetcher.failed(request, ErrorCode.NETWORK_EXCEPTION, world.now)
    world.steady += 100
    world.timers.tick(world.now)
    return found


def test_partitions_are_spread_over_fetchers_as_in_kafka() -> None:
    world = World(Random(1))
    for name in NAMES:
        world.toggle(name)
    assert named_by(world) == {0: NAMES}
    world.resize(3)
    # 31 * "a".hashCode() + partition, modulo 3: "a" is 97, "b" 98.
    spread: dict[int, list[TopicPartition]] = {0: [], 1: [], 2: []}
    for name in NAMES:
        spread[(31 * ord(name.topic) + name.partition) % 3].append(name)
    found = named_by(world)
    assert {number: sorted(names) for number, names in found.items()} == spread
    assert world.fetchers.uses(2)
    world.resize(1)
    assert not world.fetchers.uses(1)
    assert {number: sorted(names) for number, names in named_by(world).items()} == {0: NAMES}


@pytest.mark.parametrize(
    ("topic", "of_seven"),
    [
        ("flights", {0: 2, 1: 3, 100: 4}),
        ("polygenelubricants", {0: 0, 1: 1, 100: 0}),  # Its hash is -2^31.
        ("a.long-topic_name.of.42", {0: 1, 1: 2, 100: 3}),
    ],
)
def test_hashes_overflow_as_in_java(topic: str, of_seven: dict[int, int]) -> None:
    found = {
        partition: replica_fetchers.fetcher_id(TopicPartition(TopicName(topic), partition), 7) for partition in of_seven
    }
    assert found == of_seven, "as Java says of Utils.abs(31 * topic.hashCode() + partition) % 7"
