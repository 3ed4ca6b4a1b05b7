"""Followers that fetch in sessions: their leader knows the same as if each fetch named all partitions.

The model is Apache Kafka's way, in which each fetch of a follower covers all partitions of its session. Visible
records, woken fetches, the ISR and committed offsets must be the same.
"""

from __future__ import annotations

from pathlib import Path
from random import Random

import pytest

from odradek.api.request.outcome import Encoded
from odradek.base.errors import ErrorCode
from odradek.base.units import BrokerId, Offset, TopicName
from odradek.core.fetch.fetch_sessions import FINAL_EPOCH
from odradek.core.kernel.cluster_view import LeaderAndIsr
from odradek.core.kernel.purgatory import ParkedRequest
from odradek.core.partition.alter_partition_manager import CHECKS_PER_LAG, ProposedIsr
from odradek.core.partition.in_sync_replicas import InSyncReplicas
from odradek.core.partition.leading import Leading
from odradek.wire.messages.produce import ProduceResponse
from support.asking import ALL, FETCH, LEADER, PRODUCE, fetch_request
from support.controlling import OTHER
from support.fetching_follower import FetchingFollower, Responses, is_parked, offsets_of
from support.in_memory import US
from support.invariants import check
from support.led import ALL_THREE, LAG_MS_MAX, THIRD, Led

NEVER = "9223372036854775807"  # Records, as by default: no response waits for the disk.
PARTITIONS = 3
STEPS = 600
WAIT_MS = 500
Outcome = Encoded | ParkedRequest[Encoded]


class Model:
    """One partition of a leader that gets its followers' positions in each fetch."""

    def __init__(self, leading: Leading, now: int) -> None:
        self.leading = leading
        self.high_watermark = 0
        self.checked_at = -1
        state = LeaderAndIsr(US, leading.epoch, ALL_THREE, controller_epoch=leading.partition.info.controller_epoch)
        self.in_sync = InSyncReplicas(US, state, ALL_THREE, Offset(0), now, lag_ms_max=LAG_MS_MAX)

    @property
    def end(self) -> Offset:
        return self.leading.log.end_offset

    def advance(self, now: int) -> None:
        eligible, current = self.leading.eligible, Offset(self.high_watermark)
        self.high_watermark = self.in_sync.high_watermark(self.end, current, now, eligible, 1)

    def fetched(self, follower: BrokerId, offset: int, start: int, now: int) -> None:
        if not self.leading.log.start_offset <= offset <= self.end:
            return
        eligible = self.leading.eligible
        self.in_sync.fetched(follower, Offset(offset), Offset(start), self.end, now, eligible=eligible)
        self.in_sync.expand(follower, Offset(self.high_watermark), eligible)
        self.advance(now)

    def check(self, now: int) -> None:
        ours = self.leading.in_sync
        assert ours is not None
        self._wait_for_check(ours, now)
        assert self.leading.positions.high_watermark == self.high_watermark
        assert ours.committed == self.in_sync.committed
        assert ours.pending == self.in_sync.pending
        for follower in (OTHER, THIRD):
            one, other = ours.replica(follower), self.in_sync.replica(follower)
            assert one.log_end_offset == other.log_end_offset
            args = (self.end, now, LAG_MS_MAX)
            assert one.is_caught_up(*args) == other.is_caught_up(*args), "who does not say so goes on being there"

    def _wait_for_check(self, ours: InSyncReplicas, now: int) -> None:
        """Restore the leader's knowledge where only time has changed it: the leader finds out when it checks its ISRs.

        Time has an effect if a follower that is not in sync is no longer about to join.
        """
        known = self.leading.positions.high_watermark
        if known < self.high_watermark and ours.has_outsiders and now != self.checked_at:
            eligible = self.leading.eligible
            assert ours.high_watermark(self.end, known, now, eligible, 1) == self.high_watermark
            self.high_watermark = known


class Replica:
    """One follower, with the start and the end of a log for each partition."""

    def __init__(self, led: Led, broker: BrokerId, random: Random) -> None:
        self.led = led
        self.broker = broker
        self.starts = dict.fromkeys(range(PARTITIONS), 0)
        self.ends = dict.fromkeys(range(PARTITIONS), 0)
        self.begin(random)

    def begin(self, random: Random) -> None:
        """Start the process; its next fetch is new to the leader in all partitions."""
        self.fetching = FetchingFollower(self.led, self.broker, has_session=random.random() < 0.8)
        self.outcome: Outcome = None
        self.is_waiting = False
        self.sent: dict[int, tuple[int, int]] = {}  # Positions known to the leader: offset and start.
        self.received: dict[int, tuple[int, int]] = {}  # High watermark and log start in the last response.

    def send(self, wait: int) -> None:
        now = {one: (self.ends[one], self.starts[one]) for one in range(PARTITIONS)}
        has_session = self.fetching.epoch != FINAL_EPOCH
        named = {one: at for one, at in now.items() if not has_session or self.sent.get(one) != at}
        self.sent = now
        request = self.fetching.request({one: at[0] for one, at in named.items()}, wait=wait)
        for topic in request.topics:
            for part in topic.partitions:
                part.log_start_offset = named[part.partition][1]
        self.outcome = self.led.harness.send(request, self.fetching.version)
        self.fetching.epoch += has_session
        self.is_waiting = True

    def take(self, models: list[Model]) -> None:
        fetched = self.fetching.read_response(self.outcome)
        assert not self.fetching.error
        self.is_waiting = False
        for index, part in fetched.items():
            self._take(index, part.error_code, offsets_of(part), models[index].leading.log.start_offset)
            if part.error_code == ErrorCode.NONE:
                assert part.high_watermark == models[index].high_watermark
                self.received[index] = part.high_watermark, part.log_start_offset
        self._check_all_is_fetched(fetched, models)

    def _take(self, index: int, error: int, offsets: list[int], leader_start: int) -> None:
        if error == ErrorCode.OFFSET_OUT_OF_RANGE:
            assert self.ends[index] < leader_start
            self.starts[index] = self.ends[index] = leader_start
            return
        assert error == ErrorCode.NONE
        assert offsets == [*range(self.ends[index], self.ends[index] + len(offsets))], "record by record"
        self.ends[index] += len(offsets)
        self.starts[index] = max(self.starts[index], min(leader_start, self.ends[index]))

    def _check_all_is_fetched(self, fetched: Responses, models: list[Model]) -> None:
        for index, model in enumerate(models):
            if index not in fetched:
                assert self.ends[index] == model.end, "what is new is told"
                assert self.received[index] == (model.high_watermark, model.leading.log.start_offset)


class Story:
    def __init__(self, directory: Path, seed: int) -> None:
        self.random = Random(seed)
        self.led = Led(directory, partitions=PARTITIONS, flush_messages=NEVER)
        leads = [self.led.harness.broker.leader(TopicName("t"), index) for index in range(PARTITIONS)]
        self.models = [Model(one, self.now) for one in leads]
        self.replicas = [Replica(self.led, one, self.random) for one in (OTHER, THIRD)]
        self.producers: list[tuple[int, int, Outcome]] = []
        self.paused: Replica | None = None
        self.consumer: tuple[int, int, Outcome] | None = None
        self.proposals: list[ProposedIsr] = []
        self.woken = self.timed_out = self.committed = self.changed = 0

    @property
    def now(self) -> int:
        return self.led.harness.now.steady

    def play(self) -> None:
        chances = {
            self.produce: 5,
            self.fetch: 10,
            self.consume: 2,
            self.pass_time: 3,
            self.run_housekeeping: 1,
            self.answer_controller: 2,
            self.delete: 1,
            self.restart: 0.3,
            self.pause: 0.5,
        }
        for _ in range(STEPS):
            (step,) = self.random.choices([*chances], [*chances.values()])
            step()
            self.check()

    def produce(self) -> None:
        index, acks = self.random.randrange(PARTITIONS), self.random.choice((ALL, LEADER))
        outcome = self.led.produce(acks=acks, partition=index)
        self.models[index].advance(self.now)
        if acks == ALL:
            self.producers.append((index, self.models[index].end, outcome))

    def fetch(self) -> None:
        replica = self.random.choice(self.replicas)
        if not replica.is_waiting and replica is not self.paused:
            replica.send(self.random.choice((0, WAIT_MS, WAIT_MS)))
            for index, (offset, start) in replica.sent.items():
                self.models[index].fetched(replica.broker, offset, start, self.now)

    def consume(self) -> None:
        index = self.random.randrange(PARTITIONS)
        model = self.models[index]
        if self.consumer is None:
            at = model.high_watermark
            outcome = self.led.harness.send(fetch_request("t", at, partition=index, wait_ms=10 * LAG_MS_MAX), FETCH)
            assert is_parked(self.led, outcome), "nothing is there that it may see"
            self.consumer = index, at, outcome

    def pass_time(self) -> None:
        self.led.harness.pass_time(self.random.choice((1, 100, WAIT_MS, 3000, 6000)))

    def run_housekeeping(self) -> None:
        self.led.harness.pass_time(LAG_MS_MAX // CHECKS_PER_LAG)  # So that the ISRs are due for a check.
        self.led.harness.run_housekeeping()
        for model in self.models:
            model.checked_at = self.now
            model.in_sync.shrink(model.end, self.now)
            model.advance(self.now)

    def answer_controller(self) -> None:
        self.proposals += self.led.harness.broker.alter_partition.take_proposals()
        if not self.proposals:
            return
        pending = self.proposals.pop(self.random.randrange(len(self.proposals)))
        model = next(one for one in self.models if one.leading is pending.leading)
        if self.random.random() < 0.2:
            error, state = ErrorCode.INELIGIBLE_REPLICA, None
        else:
            error, state = (
                ErrorCode.NONE,
                pending.proposal._replace(partition_epoch=pending.proposal.partition_epoch + 1),
            )
        proposal = model.in_sync.pending
        assert proposal is not None
        model.in_sync.altered(proposal, error, state)
        model.advance(self.now)
        self.led.harness.broker.alter_partition.on_proposal_answered(pending, error, state, self.led.harness.now)
        self.changed += 1

    def delete(self) -> None:
        model = self.random.choice(self.models)
        log = model.leading.log
        if log.start_offset < model.high_watermark and self.random.random() < 0.5:
            start = Offset(self.random.randint(log.start_offset + 1, model.high_watermark))
            model.leading.partition.advance_start(start)

    def restart(self) -> None:
        """Restart a follower, which may have lost unsynced records."""
        replica = self.random.choice(self.replicas)
        for index in range(PARTITIONS):
            if self.random.random() < 0.2:
                replica.ends[index] = self.random.randint(replica.starts[index], replica.ends[index])
        if isinstance(replica.outcome, ParkedRequest):
            self.led.harness.broker.purgatory.forget(replica.outcome)
        replica.begin(self.random)

    def pause(self) -> None:
        """Stop one follower's fetches, or resume all."""
        self.paused = self.random.choice(self.replicas) if self.paused is None else None

    def check(self) -> None:
        check(self.led.harness.broker)
        for model in self.models:
            model.check(self.now)
        self._check_producers()
        self._check_consumer()
        for replica in self.replicas:
            if replica.is_waiting:
                self._check_wait(replica)

    def _check_producers(self) -> None:
        for one in [*self.producers]:
            index, end, outcome = one
            is_waiting = self.led.is_waiting(outcome)
            if self.models[index].high_watermark >= end:
                assert not is_waiting, "what is committed is acknowledged"
            if not is_waiting:
                self.producers.remove(one)
                answer = self.led.harness.decoded(self.led.harness.finished(outcome), PRODUCE, ProduceResponse)
                (part,) = answer.responses[0].partition_responses
                is_committed = self.models[index].high_watermark >= end
                assert part.error_code == (ErrorCode.NONE if is_committed else ErrorCode.REQUEST_TIMED_OUT)
                self.committed += is_committed

    def _check_consumer(self) -> None:
        if self.consumer is not None:
            index, at, outcome = self.consumer
            has_moved = self.models[index].high_watermark > at or self.models[index].leading.log.start_offset > at
            if has_moved:
                assert not is_parked(self.led, outcome)
            if not is_parked(self.led, outcome):
                self.consumer = None

    def _check_wait(self, replica: Replica) -> None:
        """Check that a follower waits only with all records, of which it was told when its fetch arrived."""
        is_waiting = is_parked(self.led, replica.outcome)
        has_more = any(self.models[one].end > offset for one, (offset, _) in replica.sent.items())
        assert not (is_waiting and has_more), "an append wakes it"
        if not is_waiting:
            if isinstance(replica.outcome, ParkedRequest):
                self.woken += has_more
                self.timed_out += not has_more
            replica.take(self.models)


@pytest.mark.parametrize("seed", [*range(7), 13])
def test_session_fetches_tell_a_leader_as_much_as_full_fetches(tmp_path: Path, seed: int) -> None:
    story = Story(tmp_path, seed)
    story.play()
    assert min(story.woken, story.timed_out, story.committed, story.changed), "all of it has happened"
