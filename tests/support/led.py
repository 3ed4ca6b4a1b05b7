"""A partition that is led here and has followers; the test responds as the controller."""

from __future__ import annotations

from pathlib import Path

from odradek.api.request.outcome import Encoded
from odradek.base.errors import ErrorCode
from odradek.base.units import BrokerId, Offset, TopicName
from odradek.core.kernel.cluster_view import BrokerInfo, LeaderAndIsr
from odradek.core.kernel.purgatory import ParkedRequest
from odradek.core.partition.alter_partition_manager import ProposedIsr
from odradek.core.partition.leading import Leading
from odradek.wire.messages.fetch import FetchResponse
from odradek.wire.messages.produce import ProduceResponse
from support.asking import ALL, FETCH, PRODUCE, fetch_request, produce_request
from support.controlling import OTHER, Controlling
from support.in_memory import NOW_MS, US, Harness
from support.invariants import check

THIRD = BrokerId(3)
ALL_THREE = (US, OTHER, THIRD)
LAG_MS_MAX = 10_000


class Led:
    """A topic of three replicas that is led here; most methods are about its first partition."""

    def __init__(
        self, directory: Path, partitions: int = 1, selector: str = "", *, inter_broker: str = "", **overrides: str
    ) -> None:
        """Create the topic.

        `selector` is replica.selector.class, `inter_broker` is inter.broker.protocol.version, and `overrides`
        are topic configs.
        """
        configs = {"replica_selector_class": selector} if selector else {}
        if inter_broker:
            configs["inter_broker_protocol_version"] = inter_broker
        self.harness = Harness(directory, replica_lag_time_max_ms=str(LAG_MS_MAX), **configs)
        self.controller = Controlling(self.harness)
        view = self.harness.broker.view
        view.brokers = {**view.brokers, OTHER: BrokerInfo(OTHER), THIRD: BrokerInfo(THIRD)}
        self.controller.overrides[TopicName("t")] = {key.replace("_", "."): value for key, value in overrides.items()}
        assert self.controller.send_leader_and_isr("t", *range(partitions), replicas=ALL_THREE, is_new=True) == {}
        self.controller.send_update_metadata({"t": partitions}, brokers=ALL_THREE)
        self.state = LeaderAndIsr(US, self.leading.epoch, ALL_THREE)

    @property
    def leading(self) -> Leading:
        return self.harness.broker.leader(TopicName("t"), 0)

    def end(self, partition: int = 0) -> int:
        return self.harness.broker.leader(TopicName("t"), partition).log.end_offset

    @property
    def high_watermark(self) -> int:
        return self.leading.positions.high_watermark

    def produce(self, value: bytes = b"a", acks: int = ALL, partition: int = 0) -> Encoded | ParkedRequest[Encoded]:
        request = produce_request("t", value, partition=partition, acks=acks, timestamp_ms=NOW_MS)
        return self.harness.send(request, PRODUCE)

    def produced(self, outcome: Encoded | ParkedRequest[Encoded]) -> tuple[ErrorCode, int]:
        answer = self.harness.decoded(self.harness.finished(outcome), PRODUCE, ProduceResponse)
        part = answer.responses[0].partition_responses[0]
        return ErrorCode(part.error_code), part.base_offset

    def is_waiting(self, outcome: Encoded | ParkedRequest[Encoded]) -> bool:
        self.harness.settle()
        self.harness._completed += self.harness.broker.purgatory.take_completed()
        return isinstance(outcome, ParkedRequest) and outcome not in self.harness._completed

    def visible(self) -> int:
        """Return the number of bytes that a consumer receives."""
        outcome = self.harness.send(fetch_request("t", 0, wait_ms=0), FETCH)
        answer = self.harness.decoded(self.harness.finished(outcome), FETCH, FetchResponse)
        return len(answer.responses[0].partitions[0].records or b"")  # type: ignore[arg-type]

    def fetch_as_follower(self, *followers: BrokerId, offset: int | None = None, broker_epoch: int = -1) -> None:
        """Let followers fetch from an offset, by default from the log end."""
        leading, now = self.leading, self.harness.now
        at = leading.log.end_offset if offset is None else Offset(offset)
        for follower in followers:
            if leading.fetched(follower, at, Offset(0), now, broker_epoch=broker_epoch):
                self.harness.broker.moved(leading.name, now)
        check(self.harness.broker)

    def pass_time(self, ms: int, *followers: BrokerId) -> None:
        """Advance time while these followers continue to fetch."""
        for _ in range(ms // 1000):
            self.harness.pass_time(1000)
            self.fetch_as_follower(*followers)
            self.harness.run_housekeeping()

    def take_proposal(self) -> ProposedIsr:
        (proposal,) = self.harness.broker.alter_partition.take_proposals()
        return proposal

    def answer_proposal(self, proposed: ProposedIsr, error: ErrorCode = ErrorCode.NONE) -> None:
        if error is ErrorCode.NONE:
            epoch = proposed.proposal.partition_epoch + 1
            self.state = proposed.proposal._replace(partition_epoch=epoch)
        state = self.state if error is ErrorCode.NONE else None
        self.harness.broker.alter_partition.on_proposal_answered(proposed, error, state, self.harness.now)
        check(self.harness.broker)
