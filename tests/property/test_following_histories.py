"""Histories of a partition with three replicas: elections, crashes, retention, and lost, late or repeated responses.

Without unclean elections every record below a visible high watermark is on every replica that may lead next, byte for
byte. With them replicas still become equal to their leader. In both, two logs with a batch of the same offset and epoch
are the same below it.
"""

from __future__ import annotations

from itertools import pairwise
from random import Random
from typing import NamedTuple

import pytest
from simreplicas import Answer, Contents, Replica, State, are_equal_from, contents, end_of, epoch_of

from odradek.base.errors import ErrorCode
from odradek.base.units import LeaderEpoch, Offset, ProducerId, TimestampMs
from odradek.core.replication.follower import Following
from odradek.core.replication.leader_endpoint import Fetch, Fetched, LeaderOffsets, LeaderRequest, OffsetsForLeaderEpoch
from odradek.record.record_batch import Batch, iter_batches
from support.invariants import check

STEPS = 250
REPLICAS = 3
ROUNDS_MAX = 300  # Of one question and answer for each follower; a log has fewer batches.
WAYS = {"new": (True, True, True), "old": (False, False, False), "mixed": (True, False, True)}


class Request(NamedTuple):
    """A follower's request on its way to its leader."""

    sender: Replica
    following: Following
    query: LeaderRequest


class Response(NamedTuple):
    """A response on its way back to the follower."""

    following: Following
    query: LeaderRequest
    answer: Answer


class History:
    """One partition's history, drawn from one seed.

    `ways` are the replicas that learn in a fetch where logs diverge.
    """

    def __init__(self, seed: int, ways: tuple[bool, ...], *, is_unclean: bool = False) -> None:
        self.random = Random(seed)
        self.is_unclean = is_unclean
        self.replicas = [Replica(number, diverging_in_fetch=way) for number, way in enumerate(ways)]
        self.state = State(0, LeaderEpoch(0))
        self.isr = set(range(REPLICAS))
        self.requests: list[Request] = []
        self.responses: list[Response] = []
        self.committed: Contents = {}
        self.exposed = 0  # The greatest high watermark that anybody has seen.
        self.removed: Contents = {}  # Compacted records of some replicas.
        self.unclean_elections = 0

    def run(self) -> None:
        acts = {
            self.append: 20,
            self.send_request: 34,
            self.serve: 34,
            self.deliver: 34,
            self.notify_replica: 14,
            self.elect: 4,
            self.crash: 2,
            self.shrink: 2,
            self.retain: 2,
            self.compact: 2,
            self.flush: 6,
            self.checkpoint: 4,
        }
        # Each history has its own mix: many elections, or none for long.
        weights = [weight * self.random.choice((0.3, 1, 3)) for weight in acts.values()]
        for act in self.random.choices(list(acts), weights, k=STEPS):
            act()
            self.check()
        self.check_logs()
        self.calm()

    # What a cluster does.

    def append(self) -> None:
        leaders = [one for one in self.replicas if one.led is not None]  # One that was not told yet is one of them.
        if leaders:
            self.random.choice(leaders).append(self.random)

    def send_request(self) -> None:
        one = self.random.choice(self.replicas)
        if one.following is not None and (query := one.following.next) is not None:
            self.requests.append(Request(one, one.following, query))

    def serve(self) -> None:
        if not self.requests:
            return
        request = self.requests.pop(0 if self.random.random() < 0.8 else self.random.randrange(len(self.requests)))
        if self.random.random() < 0.05:
            return
        answer = self.answered(request)
        for _ in range(2 if self.random.random() < 0.1 else 1):
            self.responses.append(Response(request.following, request.query, self.damage(answer)))

    def answered(self, request: Request) -> Answer:
        sender, following, query = request
        leader = self.replicas[following.leader]
        max_bytes = self.random.choice([1, 300, 3000])
        way = sender.diverging_in_fetch
        answer = leader.answer(sender.number, query, following.epoch, max_bytes, checks_divergence=way)
        if isinstance(answer, Fetched) and answer.error is ErrorCode.NONE and answer.diverging is None:
            self.expand(leader, sender)
            answer = answer._replace(records=self.compacted(answer.records, leader))
        return answer

    def compacted(self, records: memoryview, leader: Replica) -> memoryview:
        """Return the records without compacted ones; the last batch stays, as in a log."""
        batches = list(iter_batches(records))
        kept = [one for one in batches[:-1] if self.removed.get(one.base_offset) != bytes(one.view)] + batches[-1:]
        return memoryview(bytearray(b"".join(one.view for one in kept)))

    def damage(self, answer: Answer) -> Answer:
        """Truncate a response's last batch, or flip a bit that the checksum covers."""
        if not isinstance(answer, Fetched) or not answer.records or self.random.random() < 0.8:
            return answer
        records = bytearray(answer.records)
        if self.random.random() < 0.6:
            del records[self.random.randrange(len(records)) :]
        else:
            records[self.random.randrange(21, 61)] ^= 1 << self.random.randrange(8)
        return answer._replace(records=memoryview(records))

    def deliver(self) -> None:
        if not self.responses:
            return
        late = self.random.random() < 0.3
        response = self.responses.pop(self.random.randrange(len(self.responses)) if late else 0)
        if self.random.random() < 0.05:
            return
        disk = next(one.disk for one in self.replicas if one.partition is response.following.partition)
        disk.room = self.random.randrange(600) if self.random.random() < 0.04 else None
        self.take_in(response)
        disk.room = None

    @staticmethod
    def take_in(response: Response) -> None:
        following, query, answer = response
        now = TimestampMs(1_700_000_000_000)
        match query, answer:
            case Fetch(), Fetched():
                following.fetched(query, answer, now)
            case OffsetsForLeaderEpoch(), (error, end):
                following.epoch_ended(query, error, end, now)
            case LeaderOffsets(), (error, start, end):
                following.leader_offsets(query, error, start, end, now)
            case _:
                raise AssertionError(f"{answer} is no answer to {query}")

    def expand(self, leader: Replica, follower: Replica) -> None:
        """Add a follower to the ISR that has reached the high watermark and the start of the leader's epoch."""
        led = leader.led
        assert led is not None
        is_current = self.state == State(leader.number, led.epoch)
        reached = led.ends[follower.number] >= max(leader.visible_end, led.epoch_start)
        if is_current and reached and follower.number not in self.isr:
            led.isr.add(follower.number)
            self.isr.add(follower.number)

    def shrink(self) -> None:
        """Remove a follower that is behind from the ISR."""
        leader = self.replicas[self.state.leader]
        led = leader.led
        if led is None or led.epoch != self.state.epoch:
            return
        behind = [one for one in led.isr - {leader.number} if led.ends.get(one, -1) < leader.log.end_offset]
        if behind:
            removed = self.random.choice(behind)
            led.isr.discard(removed)
            self.isr.discard(removed)
            leader.advance()

    # What the controller does.

    def notify_replica(self) -> None:
        one = self.random.choice(self.replicas)
        if one.applied.epoch < self.state.epoch:
            one.take(self.state, self.isr)
            if one.led is not None:
                one.advance()

    def elect(self) -> None:
        candidates = sorted(self.isr)
        if self.is_unclean and self.random.random() < 0.6:
            candidates = list(range(REPLICAS))
        leader = self.random.choice(candidates)
        if leader not in self.isr:
            self.isr = {leader}
            self.unclean_elections += 1
        self.state = State(leader, LeaderEpoch(self.state.epoch + 1))

    def crash(self) -> None:
        """End a process, which restarts at once; a replica that lost data leaves the ISR."""
        one = self.random.choice(self.replicas)
        is_last = self.isr == {one.number}
        loses_data = self.random.random() < 0.5 and (self.is_unclean or not is_last)
        one.disk = one.disk.crash(self.random) if loses_data else one.disk.kill()
        ended = one.partition  # Requests of its process get no response.
        self.requests = [request for request in self.requests if request.following.partition is not ended]
        self.responses = [response for response in self.responses if response.following.partition is not ended]
        one.open()
        if one.number not in self.isr:
            return
        if not is_last:
            self.isr.discard(one.number)
        leader = self.state.leader if self.state.leader in self.isr else self.random.choice(sorted(self.isr))
        self.state = State(leader, LeaderEpoch(self.state.epoch + 1))

    # What happens beside.

    def retain(self) -> None:
        one = self.random.choice(self.replicas)
        offset = self.random.randint(one.log.start_offset, one.visible_end)
        one.partition.advance_start(Offset(offset))
        one.write_checkpoint()  # A broker writes first where a log starts, see core/partition/log_starts.py.
        one.partition.delete_below_start(one.now)
        one.log.reaper.reap(TimestampMs(one.now + 1))

    def compact(self) -> None:
        """Remove some committed batches from all later responses, but not the first of an epoch.

        In the resulting gap a follower could keep records of another leader, as with Apache Kafka: no epoch in its
        leader's log shows it.
        """
        if self.is_unclean:  # Committed records may be lost there, and replaced.
            return
        bases = sorted(self.committed)
        for before, base in pairwise(bases[:-1]):
            batch = Batch.trusted(memoryview(self.committed[base]))
            is_first = epoch_of(self.committed[before]) != batch.leader_epoch
            if not is_first and not batch.is_control and self.random.random() < 0.2:
                self.removed[base] = self.committed[base]

    def flush(self) -> None:
        one = self.random.choice(self.replicas)
        if one.flushes:
            one.end_flush()
        else:
            one.begin_flush()

    def checkpoint(self) -> None:
        one = self.random.choice(self.replicas)
        one.write_checkpoint()
        one.high_watermark = one.visible_end

    # What always holds.

    def check(self) -> None:
        for one in self.replicas:
            positions, log = one.partition.positions, one.log
            assert positions.are_within(log.start_offset, log.end_offset)
            assert positions.durable_end <= log.recovery_point
            if one.led is not None and one.visible_end > self.exposed:
                self.expose(one)
        if not self.is_unclean:
            assert all(one.visible_end <= self.exposed for one in self.replicas), "a leader's comes before a follower's"
        if self.random.random() < 0.1:
            self.check_logs()

    def expose(self, one: Replica) -> None:
        for base, raw in contents(one.log).items():
            if self.exposed <= base and end_of(raw) <= one.visible_end:
                self.committed[base] = raw
        self.exposed = one.visible_end

    def check_logs(self) -> None:
        for one in self.replicas:
            check(one.log)
        logs = [contents(one.log) for one in self.replicas]
        for one in self.replicas:
            for other in self.replicas[: one.number]:
                self.match(one, other, logs[one.number], logs[other.number])
        if self.is_unclean:
            return
        for one in self.replicas:
            self.has_committed(one, logs[one.number], one.visible_end)
            if one.number in self.isr:
                self.has_committed(one, logs[one.number], self.exposed)

    def match(self, one: Replica, other: Replica, ours: Contents, theirs: Contents) -> None:
        common = [base for base in ours.keys() & theirs.keys() if epoch_of(ours[base]) == epoch_of(theirs[base])]
        if common:
            start = max(one.log.start_offset, other.log.start_offset)
            assert are_equal_from(start, ours, theirs, self.removed, max(common) + 1), "log matching"

    def has_committed(self, one: Replica, log: Contents, upto: int) -> None:
        ours = {base: raw for base, raw in log.items() if end_of(raw) <= upto}
        committed = {base: raw for base, raw in self.committed.items() if end_of(raw) <= upto}
        assert are_equal_from(one.log.start_offset, ours, committed, self.removed, upto), "what was visible stays"

    # The end.

    def calm(self) -> None:
        self.requests.clear()
        self.responses.clear()
        for one in self.replicas:
            if one.applied.epoch < self.state.epoch:
                one.take(self.state, self.isr)
        leader = self.replicas[self.state.leader]
        leader.advance()
        followers = [one for one in self.replicas if one is not leader]
        rounds = 0  # A round in which all replicas fetched, and are equal to the leader.
        for _ in range(ROUNDS_MAX):
            fetches = [self.fetch_once(one) for one in followers]
            is_level = all(self.is_level(one, leader) for one in self.replicas)
            rounds = rounds + 1 if is_level and all(fetches) else 0
            if rounds == 2:
                break
        else:
            ends = [(one.log.start_offset, one.visible_end, one.log.end_offset) for one in self.replicas]
            pytest.fail(f"it never becomes calm: {ends}, led by {leader.number}")
        self.check()
        self.check_logs()
        for one in followers:
            self.are_alike(one, leader)

    def fetch_once(self, one: Replica) -> bool:
        """Make a follower send a request and handle the response; return True if it fetched."""
        following = one.following
        assert following is not None and following.next is not None, "nobody stops following"
        request = Request(one, following, following.next)
        self.take_in(Response(following, request.query, self.answered(request)))
        assert not following.delay_ms or not isinstance(request.query, Fetch), "an answer that is right is taken in"
        return isinstance(request.query, Fetch)

    def is_level(self, one: Replica, leader: Replica) -> bool:
        starts_alike = one.log.start_offset >= leader.log.start_offset
        return starts_alike and one.log.end_offset == leader.log.end_offset == one.visible_end == leader.visible_end

    def are_alike(self, one: Replica, leader: Replica) -> None:
        start = max(one.log.start_offset, leader.log.start_offset)
        ours, theirs = contents(one.log), contents(leader.log)
        assert are_equal_from(start, ours, theirs, self.removed, leader.log.end_offset)
        last: dict[int, Batch] = {}
        for raw in theirs.values():
            batch = Batch.trusted(memoryview(raw))
            if not batch.is_control and batch.base_offset >= start:
                last[batch.producer_id] = batch
        for producer_id, batch in last.items():
            if batch.base_offset in self.removed:  # Real compaction keeps a producer's last batch, if only its header.
                continue
            known = one.log.producers.get(batch.producer_id)
            assert known is not None, f"what producer {producer_id} wrote is replicated"
            assert known.last_sequence == batch.last_sequence, "the next leader knows which sequence comes next"
            assert known.has_open_transaction == has_open_transaction(leader, batch.producer_id)


def has_open_transaction(one: Replica, producer_id: ProducerId) -> bool:
    known = one.log.producers.get(producer_id)
    return known is not None and known.has_open_transaction


def one_history(seed: int) -> None:
    for way in WAYS.values():
        History(seed, way).run()
        History(seed, way, is_unclean=True).run()


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("seed", range(40))
def test_visible_records_are_on_all_replicas(seed: int, way: str) -> None:
    History(seed, WAYS[way]).run()


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("seed", range(40))
def test_replicas_become_equal_to_an_uncleanly_elected_leader(seed: int, way: str) -> None:
    History(seed, WAYS[way], is_unclean=True).run()


@pytest.mark.soak
@pytest.mark.timeout(1800)
def test_many_more_histories_keep_visible_records() -> None:
    for seed in range(10_000, 11_000):
        try:
            one_history(seed)
        except BaseException as failure:
            raise AssertionError(f"seed {seed}") from failure
