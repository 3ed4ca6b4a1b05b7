"""A broker without sockets, threads and a clock: requests and responses are bytes, and time is a number."""

from __future__ import annotations

import itertools
import struct
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TypeVar, cast

from odradek.api.conversation import Conversation, Dispatch
from odradek.api.dispatch import dispatch
from odradek.api.request.admission import Admission
from odradek.api.request.call import Peer
from odradek.api.request.gate import Gate
from odradek.api.request.outcome import Encoded
from odradek.api.request.sliced_response import whole
from odradek.base.errors import ErrorCode, Refused
from odradek.base.units import BrokerId, ProducerId, TimestampMs, TopicName
from odradek.base.uuids import Uuid
from odradek.core.broker.broker import Broker
from odradek.core.broker.effects import (
    AllocateProducerIds,
    AlterConfigs,
    Altered,
    Change,
    Changed,
    ConfigOwner,
    CreatePartitions,
    CreateTopics,
    DeleteTopics,
    Effect,
)
from odradek.core.broker.replicas import is_assigned
from odradek.core.cleaner.cleaning_steps import Clean, Cleaned
from odradek.core.configs.broker_configs import BrokerConfigs
from odradek.core.configs.config_validation import DynamicConfigTexts, altered_broker, altered_topic
from odradek.core.coordinators.state_topics import ALONE
from odradek.core.kernel.cluster_view import BrokerInfo, ClusterView, Endpoint
from odradek.core.kernel.entropy import Entropy
from odradek.core.kernel.moment import Moment
from odradek.core.kernel.purgatory import ParkedRequest
from odradek.core.partition.storage import Storage, log_config
from odradek.core.transactions.producer_ids import ProducerIdBlock
from odradek.log.directory.directory_loading import open_log_directory
from odradek.log.files.disk import FileSlice, RealDisk
from odradek.net.loop.traffic import Latencies
from odradek.net.shell.effect_executor import Effects, Writers
from odradek.wire.client_codec import decode_response, encode_request
from odradek.wire.connection import Connection
from odradek.wire.request import Request
from support.at_once import AtOnce
from support.own_controller import OneController

NOW_MS = 1_700_000_000_000
US = BrokerId(1)
CLIENT = "tests"

Answer = TypeVar("Answer")


class InMemoryHost:
    """The owner of conversations without a socket."""

    def __init__(self, broker: Broker, gate: Gate) -> None:
        self.broker = broker
        self.gate = gate
        self.dispatch: Dispatch = dispatch

    def must_dispatch_each(self, api_key: int) -> bool:
        return False

    def on_answered(self, request: Request, began: float) -> None:
        """Ignore the response, since there are no metrics."""


class AsItIs:
    """A gate that gives each peer the admission set by the test."""

    def admit(self, peer: Peer, request: Request, now: Moment) -> Admission:
        return peer.admission


class Harness:
    """One broker and one client of it. Effects are executed only when `settle` is called."""

    def __init__(self, directory: Path, **configs: str) -> None:
        self.now = Moment(TimestampMs(NOW_MS), 1_000_000)
        self.longest_ns = 0  # The thread's processor time, for work that a loop would do in one callback.
        self.dynamic = DynamicConfigTexts({}, {})
        self.opening_ms = 0  # The time that opening all logs takes.
        self.announces_topics = True  # The topics at the start.
        self.disk = RealDisk()
        texts = {key.replace("_", "."): value for key, value in configs.items()}
        self.configs = BrokerConfigs.parse(texts, defaults=ALONE)
        numbers = itertools.count(1)
        self._entropy = Entropy(lambda: next(numbers), lambda: Uuid(next(numbers).to_bytes(16, "big")))
        self._blocks = itertools.count()
        self._directory = directory
        endpoint = Endpoint("PLAINTEXT", "127.0.0.1", 9092)
        self.peer = Peer("PLAINTEXT", endpoint, None, "127.0.0.1:50000")
        self.peer.admission = Admission()  # The learned metadata is not shared.
        self._view = ClusterView("cluster", US, {US: BrokerInfo(US, (endpoint,))})
        self._starts = 0
        self._shell = AtOnce(lambda: self.now, self.callback)
        self._open()
        self.gate: Gate = AsItIs()
        self._correlation = itertools.count(1)
        self._completed: list[ParkedRequest[object]] = []  # Conversations whose responses are not requested yet.

    @contextmanager
    def callback(self) -> Iterator[None]:
        """Measure the work that a loop would do without a pause."""
        began = time.thread_time_ns()
        yield
        self.longest_ns = max(self.longest_ns, time.thread_time_ns() - began)

    def _step(self, talk: Conversation) -> bool:
        with self.callback():
            return talk.step(self.now, 0)

    def _open(self) -> None:
        """Start a broker with the metadata of the previous one."""
        logs = open_log_directory(
            self.disk,
            str(self._directory),
            self.now.wall,
            broker_id=US,
            cluster_id="cluster",
            config_of=lambda topic: log_config(self.configs.for_topic(self._configs_of(topic))),
        )
        kept, storage = self._view, Storage([logs])
        if kept.topics:
            storage.set_strays_aside(partial(is_assigned, US, kept), self.now.wall)
        self.now = _later(self.now, self.opening_ms)
        alone = ClusterView(kept.cluster_id, brokers=kept.brokers)
        self.broker = Broker(US, alone, storage, self.configs, self._entropy)
        writers = Writers(self._change, self._take_ids, self._altered)
        self._effects = Effects(self._shell, self.broker, self, writers, clean=_clean, syncs=Latencies())
        self._starts += 1
        self.controller = OneController(self.broker, self._starts)
        self.broker.start(self.now)
        if self.announces_topics:
            whole(self.controller.begin(kept.topics.values(), self.now))

    def _configs_of(self, name: TopicName) -> Mapping[str, str]:
        topic = self._view.topics.get(name)
        return {} if topic is None else topic.configs

    def restart(self) -> None:
        self.broker.stop(self.now)
        self._view = self.broker.view
        self._open()

    def kill(self) -> None:
        """Kill the broker, as kill -9 does: written data stays, and nothing is completed."""
        for directory in self.broker.storage:
            directory.abandon()
        self._view = self.broker.view
        self._open()

    def send(self, message: object, version: int) -> Encoded | ParkedRequest[Encoded]:
        """Return the encoded response, None if there is none, or the parked request."""
        return self._send(frame_of(message, version, next(self._correlation), CLIENT))

    def send_raw(self, api_key: int, version: int, body: bytes) -> Encoded:
        """Send a request with an arbitrary body after a header of version 1."""
        header = struct.pack(">hhih", api_key, version, next(self._correlation), len(CLIENT)) + CLIENT.encode()
        outcome = self._send(struct.pack(">i", len(header) + len(body)) + header + body)
        assert not isinstance(outcome, ParkedRequest)
        return outcome

    def send_frame(self, frame: bytes) -> Encoded | ParkedRequest[Encoded]:
        """Send arbitrary bytes as one frame; raise Malformed."""
        return self._send(frame)

    def _send(self, frame: bytes) -> Encoded | ParkedRequest[Encoded]:
        """Send on a separate conversation, so that a parked request delays no others."""
        talk = self.talk()
        talk.receive_data(frame)
        self.resume(talk)
        return self._response_of(talk)

    def _response_of(self, talk: Conversation) -> Encoded | ParkedRequest[Encoded]:
        for parked in talk.parked:
            return parked
        if isinstance(talk.waits_for, ParkedRequest):
            return cast("ParkedRequest[Encoded]", talk.waits_for)
        if talk.ending is not None:
            raise talk.ending.reason
        return talk.data_to_send() or None

    def talk(self, peer: Peer | None = None, gate: Gate | None = None) -> Conversation:
        """Open a connection, whose bytes the caller passes in and out."""
        return Conversation(InMemoryHost(self.broker, gate or self.gate), peer or self.peer, Connection(), lambda: None)

    def resume(self, talk: Conversation) -> None:
        """Continue as far as possible, including the work of threads."""
        while True:
            while self._step(talk):
                pass
            with self.callback():
                talk.commit(self.now, 0)
            works = self.broker.works.copy()
            if not works:
                return
            self.broker.works.clear()
            for work in works:
                work.run()
                with self.callback():
                    work.on_finished()

    def request(self, message: object, version: int, answer: type[Answer]) -> Answer:
        """Send, execute the broker's effects, and if there is still no response let the deadline pass."""
        return self.decoded(self.finished(self.send(message, version)), version, answer)

    def finished(self, outcome: Encoded | ParkedRequest[Encoded]) -> Encoded:
        """Return the response of a possibly parked request."""
        if not isinstance(outcome, ParkedRequest):
            return outcome
        self.settle()
        completed = self._completed
        completed += self.broker.purgatory.take_completed()
        while outcome not in completed:
            due = self.broker.next_due()
            assert due is not None, "a parked request has a deadline"
            self.pass_time(due - self.now.steady)
            self.settle()
            completed += self.broker.purgatory.take_completed()
        completed.remove(outcome)
        talk = outcome.owner
        assert isinstance(talk, Conversation)
        talk.answer_parked(outcome, self.now)
        self.resume(talk)
        return self.finished(self._response_of(talk))

    def run_housekeeping(self) -> None:
        self.run_housekeeping_in_slices()
        self.settle()

    def run_housekeeping_in_slices(self) -> None:
        self._shell.do(self.broker.run_housekeeping(self.now))

    def decoded(self, outcome: Encoded, version: int, answer: type[Answer]) -> Answer:
        assert outcome is not None
        frame = b"".join(chunk.read() if isinstance(chunk, FileSlice) else bytes(chunk) for chunk in outcome)  # type: ignore[arg-type]
        assert int.from_bytes(frame[:4], "big") == len(frame) - 4
        return decode_response(answer, version, frame[4:])[1]

    def pass_time(self, ms: int) -> None:
        self.now = _later(self.now, ms)
        with self.callback():
            self.broker.tick(self.now)

    def settle(self) -> None:
        while effects := self.broker.take_effects():
            for effect in effects:
                self._carry_out(effect)

    def _carry_out(self, effect: Effect) -> None:
        self._effects.start(effect)

    def _take_ids(self, _: AllocateProducerIds) -> ProducerIdBlock:
        first = next(self._blocks) * 1000
        return ProducerIdBlock(ProducerId(first), ProducerId(first + 999))

    def _change(self, change: Change) -> Changed:
        """Apply a change, like a metadata tree without other contents."""
        match change:
            case CreateTopics():
                return Changed(change.token, {topic.name: topic for topic in change.topics})
            case DeleteTopics():
                return Changed(change.token, dict.fromkeys(change.topics))
            case CreatePartitions():
                grown = {}
                for name, growth in change.topics.items():
                    topic = self.broker.view.topics[name]
                    grown[name] = type(topic)(name, topic.id, topic.partitions + growth.added, topic.configs)
                return Changed(change.token, grown)

    def forwards(self, change: Change) -> bool:
        """Return False, since there is no other broker."""
        return False

    def changed(self, change: Change, changed: Changed) -> None:
        """Announce a change as the controller does."""
        self._shell.add_slices(self.controller.apply_change(changed, self.now))

    def learn(self, changed: Changed) -> None:
        """Announce created, extended or deleted topics as the controller does."""
        self._shell.do(self.controller.apply_change(changed, self.now))

    def _altered(self, change: AlterConfigs, _: TimestampMs) -> Altered:
        """Alter configs, as net/cluster/config_writer.py does in the metadata tree."""
        topics: dict[TopicName, Mapping[str, str]] = {}
        refused: dict[ConfigOwner, Refused] = {}
        configs, dynamic = None, self.dynamic
        for owner, edit in change.edits.items():
            try:
                if owner.is_topic:
                    topic = self.broker.view.topics.get(TopicName(owner.name))
                    after = altered_topic(self.configs, topic.configs if topic else {}, edit)
                    if topic is None:
                        raise Refused(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
                    topics[topic.name] = after
                else:
                    dynamic, configs = altered_broker(configs or self.configs, dynamic, edit, for_all=not owner.name)
            except Refused as refusal:
                refused[owner] = refusal
        if change.is_dry:
            return Altered(change.token, refused=refused)
        self.dynamic = dynamic
        return Altered(change.token, topics, configs, (), refused)


def _clean(step: Clean) -> Cleaned:
    return step.run(lambda _: None)


def frame_of(message: object, version: int, correlation: int, client: str) -> bytes:
    chunks = encode_request(message, version, correlation, client)
    return b"".join(chunk for chunk in chunks if isinstance(chunk, bytes))


def _later(now: Moment, ms: int) -> Moment:
    return Moment(TimestampMs(now.wall + ms), now.steady + ms)
