"""Requests of a connection without a socket: gate, order, steps, muting, and end."""

from __future__ import annotations

from pathlib import Path
from random import Random
from typing import TypeVar

import pytest

from odradek.api.conversation import Conversation
from odradek.api.groups import list_groups
from odradek.api.request.admission import Admission
from odradek.api.request.call import Call, Peer
from odradek.api.request.outcome import PAUSE, Slices
from odradek.api.table import BY_KEY, Api
from odradek.base.errors import ErrorCode, Refused
from odradek.base.limits import REQUEST_ELEMENTS_INLINE_MAX
from odradek.base.units import CorrelationId, TopicName, TopicPartition
from odradek.core.kernel.access import Principal
from odradek.core.kernel.moment import Moment
from odradek.core.kernel.work import Work
from odradek.log.files.disk import FileSlice
from odradek.record.builder import encode_batch
from odradek.wire.catalog import APIS
from odradek.wire.client_codec import decode_response
from odradek.wire.messages.create_topics import CreatableTopic, CreateTopicsRequest, CreateTopicsResponse
from odradek.wire.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic
from odradek.wire.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from odradek.wire.messages.list_groups import ListGroupsRequest, ListGroupsResponse
from odradek.wire.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from odradek.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)
from odradek.wire.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from odradek.wire.request import Request
from odradek.wire.response import encode_response
from odradek.wire.schema.api_keys import ApiKey
from odradek.wire.schema.compile import decode, encode
from odradek.wire.schema.layout import layout
from odradek.wire.schema.malformed import Malformed
from support.hostile import forge_for
from support.in_memory import NOW_MS, Harness, InMemoryHost, frame_of

ADMITTED = Admission()
DENIED = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
THROTTLE_MS = 700
PRODUCE, FETCH, COMMIT = 9, 12, 8

Answer = TypeVar("Answer")

LATEST = [(api, api.versions[-1]) for api in BY_KEY.values()]


class RecordingGate:
    """A gate that returns a given admission, and records its calls."""

    def __init__(self, admission: Admission = ADMITTED) -> None:
        self.admission = admission
        self.calls: list[tuple[int, int]] = []

    def admit(self, peer: Peer, request: Request, now: Moment) -> Admission:
        self.calls.append((request.api_key, request.sequence))
        return self.admission


@pytest.fixture
def harness(tmp_path: Path) -> Harness:
    made = Harness(tmp_path, offsets_topic_num_partitions="1", transaction_state_log_num_partitions="1")
    topic = CreatableTopic(name="t", num_partitions=2, replication_factor=1, assignments=[], configs=[])
    made.request(CreateTopicsRequest(topics=[topic], timeout_ms=1_000), 5, CreateTopicsResponse)
    return made


def forged(harness: Harness, api: Api, version: int, seed: int = 1) -> object:
    ids = {name: bytes(topic.id) for name, topic in harness.broker.view.topics.items()}
    while True:
        message = forge_for(Random(seed), ids).message(api.request, version)
        try:
            decode(api.request, version, encode(message, version))
        except (Malformed, ValueError):
            seed += 100  # A null in a field that is not nullable.
            continue
        if isinstance(message, ProduceRequest):
            message.acks = 1  # Otherwise there is no response to check.
        return message


def sent(harness: Harness, talk: Conversation, message: object, version: int, correlation: int = 1) -> bytes:
    """Return the data that is sent immediately."""
    talk.receive_data(frame_of(message, version, correlation, "c"))
    harness.resume(talk)
    return taken(talk)


def taken(talk: Conversation) -> bytes:
    chunks = talk.data_to_send()
    return b"".join(chunk.read() if isinstance(chunk, FileSlice) else bytes(chunk) for chunk in chunks)  # type: ignore[arg-type]


def answer(data: bytes, of: type[Answer], version: int) -> Answer:
    return decode_response(of, version, data[4:])[1]


def produce(*values: bytes, acks: int = 1) -> ProduceRequest:
    records = encode_batch([(b"k", value, (), NOW_MS) for value in values or (b"v",)])
    data = TopicProduceData(name="t", partition_data=[PartitionProduceData(index=0, records=records)])
    return ProduceRequest(acks=acks, timeout_ms=1_000, topic_data=[data])


def fetch(offset: int = 0, wait_ms: int = 0) -> FetchRequest:
    part = FetchPartition(partition=0, fetch_offset=offset, partition_max_bytes=1 << 20)
    topic = FetchTopic(topic="t", partitions=[part])
    return FetchRequest(max_wait_ms=wait_ms, min_bytes=1, max_bytes=1 << 20, session_epoch=-1, topics=[topic])


def commit(offset: int = 1) -> OffsetCommitRequest:
    part = OffsetCommitRequestPartition(partition_index=0, committed_offset=offset, committed_metadata="")
    topic = OffsetCommitRequestTopic(name="t", partitions=[part])
    return OffsetCommitRequest(group_id="g", topics=[topic])


# Admission by the gate.


@pytest.mark.parametrize(("api", "version"), LATEST, ids=lambda one: getattr(getattr(one, "key", one), "name", one))
def test_refused_request_gets_its_error_and_changes_nothing(harness: Harness, api: Api, version: int) -> None:
    before = harness.broker.view
    for seed in range(5):
        body = forged(harness, api, version, seed)
        gate = RecordingGate(Admission(refused=DENIED))
        talk = harness.talk(gate=gate)
        data = sent(harness, talk, body, version)
        call = Call(harness.broker, harness.peer, version, "c", CorrelationId(1), harness.now)
        request = Request(api.key, version, 1, "c", memoryview(b""), 0, 0)
        chunks = encode_response(request, api.refuse(call, body, DENIED))
        assert data == b"".join(bytes(chunk) for chunk in chunks)  # type: ignore[arg-type]
        assert gate.calls == [(api.key, 0)]
        assert not harness.broker.take_effects() and harness.broker.view is before


@pytest.mark.parametrize(("api", "version"), LATEST, ids=lambda one: getattr(getattr(one, "key", one), "name", one))
def test_throttled_request_is_served_and_mutes_its_connection(harness: Harness, api: Api, version: int) -> None:
    talk = harness.talk(gate=RecordingGate(Admission(throttle_ms=THROTTLE_MS)))
    talk.receive_data(
        frame_of(forged(harness, api, version), version, 1, "c") + frame_of(ListGroupsRequest(), 4, 2, "c")
    )
    harness.resume(talk)
    data = taken(talk)
    while not data:  # The request is parked, so the following ones of the connection wait too.
        assert talk.is_waiting, talk.ending
        data = parked_response(harness, talk)
    response = answer(data, APIS[api.key][1], version)
    if any(field.name == "throttle_time_ms" for field in layout(type(response), version).fields):
        assert response.throttle_time_ms == THROTTLE_MS  # type: ignore[attr-defined]
    assert talk.mute_until == harness.now.steady + THROTTLE_MS
    harness.pass_time(THROTTLE_MS - 1)
    harness.resume(talk)
    assert taken(talk) == b""
    harness.pass_time(1)
    harness.resume(talk)
    assert answer(taken(talk), ListGroupsResponse, 4).throttle_time_ms == THROTTLE_MS


def parked_response(harness: Harness, talk: Conversation) -> bytes:
    harness.settle()
    completed = harness.broker.purgatory.take_completed()
    if not completed:
        due = harness.broker.next_due()
        assert due is not None
        harness.pass_time(max(due - harness.now.steady, 1))
        completed = harness.broker.purgatory.take_completed()
    for parked in completed:
        talk.answer_parked(parked, harness.now)  # type: ignore[arg-type]
    harness.resume(talk)
    return taken(talk)


def known(harness: Harness, message: object, version: int, times: int = 3) -> Conversation:
    """Return a conversation with templates for requests like this one."""
    talk = harness.talk()
    for correlation in range(times):
        sent(harness, talk, message, version, correlation) or parked_response(harness, talk)
    templates = (talk.peer.produce_templates, talk.peer.fetch_templates, talk.peer.commit_templates)
    assert any(map(len, templates))
    return talk


PLAIN = [
    (produce(), PRODUCE, ProduceResponse),
    (fetch(), FETCH, FetchResponse),
    (commit(), COMMIT, OffsetCommitResponse),
]


def codes_of(response: object) -> set[int]:
    if isinstance(response, ProduceResponse):
        return {part.error_code for topic in response.responses for part in topic.partition_responses}
    if isinstance(response, OffsetCommitResponse):
        return {part.error_code for topic in response.topics for part in topic.partitions}
    assert isinstance(response, FetchResponse)
    return {response.error_code, *(part.error_code for topic in response.responses for part in topic.partitions)}


@pytest.mark.parametrize(("message", "version", "of"), PLAIN, ids=["produce", "fetch", "commit"])
def test_templated_request_passes_the_gate_too(
    harness: Harness, message: object, version: int, of: type[object]
) -> None:
    group = FindCoordinatorRequest(key="g", key_type=0)
    harness.request(group, 3, FindCoordinatorResponse)
    sent(harness, harness.talk(), produce(), PRODUCE)
    talk, gate = known(harness, message, version), RecordingGate()
    talk._host = InMemoryHost(harness.broker, gate)  # From this request on.
    end = harness.broker.partitions[TopicPartition(TopicName("t"), 0)].log.end_offset
    gate.admission = Admission(refused=ErrorCode.TOPIC_AUTHORIZATION_FAILED, version=1)
    refused = sent(harness, talk, message, version)
    assert ErrorCode.TOPIC_AUTHORIZATION_FAILED in codes_of(answer(refused, of, version))
    assert harness.broker.partitions[TopicPartition(TopicName("t"), 0)].log.end_offset == end
    templates = (talk.peer.produce_templates, talk.peer.fetch_templates, talk.peer.commit_templates)
    assert not any(map(len, templates))
    gate.admission = Admission(throttle_ms=THROTTLE_MS, version=1)
    talk.receive_data(frame_of(message, version, 9, "c"))
    harness.resume(talk)
    data = taken(talk) or parked_response(harness, talk)
    response = answer(data, of, version)
    assert response.throttle_time_ms == THROTTLE_MS and codes_of(response) == {0}  # type: ignore[attr-defined]
    assert talk.mute_until == harness.now.steady + THROTTLE_MS


def test_new_principal_does_not_use_the_templates_of_the_old_one(harness: Harness) -> None:
    talk = known(harness, produce(), PRODUCE)
    gate = RecordingGate(Admission(Principal("User", "alice")))
    talk._host = InMemoryHost(harness.broker, gate)
    templates = talk.peer.produce_templates
    sent(harness, talk, produce(), PRODUCE)
    assert talk.peer.admission.principal == Principal("User", "alice")
    assert talk.peer.produce_templates is not templates
    kept = talk.peer.produce_templates
    sent(harness, talk, produce(), PRODUCE)
    assert talk.peer.produce_templates is kept and len(kept)


# Order.


def test_parked_throttled_request_delays_the_next_ones(harness: Harness) -> None:
    talk = harness.talk(gate=RecordingGate(Admission(throttle_ms=THROTTLE_MS)))
    talk.receive_data(frame_of(fetch(wait_ms=500), FETCH, 1, "c") + frame_of(ListGroupsRequest(), 4, 2, "c"))
    harness.resume(talk)
    assert len(talk.parked) == 1 and not talk.can_continue(harness.now)
    assert answer(parked_response(harness, talk), FetchResponse, FETCH).throttle_time_ms == THROTTLE_MS
    assert not talk.can_continue(harness.now)
    harness.pass_time(THROTTLE_MS)
    assert talk.can_continue(harness.now)


def test_answers_keep_the_order_of_their_requests(harness: Harness) -> None:
    talk = harness.talk()
    talk.receive_data(frame_of(fetch(wait_ms=500), FETCH, 1, "c") + frame_of(ListGroupsRequest(), 4, 2, "c"))
    harness.resume(talk)
    assert taken(talk) == b""
    data = parked_response(harness, talk)
    first = int.from_bytes(data[:4], "big") + 4
    assert [int.from_bytes(data[at + 4 : at + 8], "big") for at in (0, first)] == [1, 2]


# Requests in steps.


def many(count: int = REQUEST_ELEMENTS_INLINE_MAX) -> ListOffsetsRequest:
    parts = [ListOffsetsPartition(partition_index=index, timestamp=-1) for index in range(count)]
    return ListOffsetsRequest(replica_id=-1, topics=[ListOffsetsTopic(name="t", partitions=parts)])


def test_large_body_is_decoded_on_a_thread_before_the_next_request(harness: Harness) -> None:
    talk = harness.talk()
    talk.receive_data(frame_of(many(), 5, 1, "c") + frame_of(ListGroupsRequest(), 4, 2, "c"))
    while talk.step(harness.now, 0):
        pass
    (work,) = harness.broker.works
    assert talk.has_unhandled and not talk.can_continue(harness.now) and talk.is_waiting and not talk.data_to_send()
    other = harness.talk()
    assert sent(harness, other, ListGroupsRequest(), 4), "other connections pass"
    harness.resume(talk)
    data = taken(talk)
    assert [int.from_bytes(data[4:8], "big")] == [1]
    assert int.from_bytes(data[int.from_bytes(data[:4], "big") + 8 :][:4], "big") == 2
    assert not harness.broker.works and work.error is None


def test_body_decoded_on_a_thread_gets_the_same_response(harness: Harness) -> None:
    few = sent(harness, harness.talk(), many(REQUEST_ELEMENTS_INLINE_MAX - 1), 5)
    more = sent(harness, harness.talk(), many(REQUEST_ELEMENTS_INLINE_MAX), 5)
    counted = 20  # Up to and including the number of partitions.
    assert more[counted + 12 : len(few)] == few[counted + 12 :]


def test_truncated_large_body_ends_the_conversation(harness: Harness) -> None:
    frame = bytearray(frame_of(many(), 5, 1, "c"))
    del frame[-30:]
    frame[:4] = (len(frame) - 4).to_bytes(4, "big")
    talk = harness.talk()
    talk.receive_data(bytes(frame))
    harness.resume(talk)
    assert talk.ending is not None and isinstance(talk.ending.reason, Malformed)


def test_disconnect_during_decoding_is_handled(harness: Harness) -> None:
    talk = harness.talk()
    talk.receive_data(frame_of(many(), 5, 1, "c"))
    talk.step(harness.now, 0)
    (work,) = harness.broker.works
    talk.leave()
    work.run()
    work.on_finished()
    assert not talk.has_unhandled and not talk.data_to_send()


@pytest.fixture
def sliced(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Let ListGroups take three slices and a thread; return the executed steps."""
    done: list[str] = []
    plainly = list_groups.handle

    def handle(call: Call, body: ListGroupsRequest) -> Slices:
        done.append("first")
        yield PAUSE
        done.append("second")
        value = yield Work(lambda: call.correlation_id)
        done.append(f"third {value} {call.now.steady}")
        if "fails" in (body.states_filter or []):
            raise RuntimeError("a bug")
        if "refused" in (body.states_filter or []):
            raise Refused(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
        return (yield from plainly(call, body))

    monkeypatch.setattr("odradek.api.request.outcome.SLICE_ELEMENTS", 0)
    monkeypatch.setitem(BY_KEY[ApiKey.LIST_GROUPS].__dict__, "handle", handle)
    return done


def test_handler_slices_use_the_current_time(harness: Harness, sliced: list[str]) -> None:
    talk = harness.talk()
    talk.receive_data(frame_of(ListGroupsRequest(), 4, 7, "c"))
    assert talk.step(harness.now, 0)
    assert sliced == ["first"]
    harness.pass_time(5)
    assert not talk.step(harness.now, 0), "a thread is asked"
    assert sliced == ["first", "second"]
    harness.pass_time(5)
    harness.resume(talk)
    assert sliced == ["first", "second", f"third 7 {harness.now.steady}"]
    assert answer(taken(talk), ListGroupsResponse, 4).error_code == 0


@pytest.mark.parametrize(
    ("state", "code"),
    [("fails", ErrorCode.UNKNOWN_SERVER_ERROR), ("refused", ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)],
)
def test_exception_in_a_slice_returns_an_error_code(harness: Harness, sliced: list[str], state: str, code: int) -> None:
    data = sent(harness, harness.talk(), ListGroupsRequest(states_filter=[state]), 4)
    assert answer(data, ListGroupsResponse, 4).error_code == code


def test_gate_is_checked_before_each_slice(harness: Harness, sliced: list[str]) -> None:
    gate = RecordingGate()
    talk = harness.talk(gate=gate)
    talk.receive_data(frame_of(ListGroupsRequest(), 4, 7, "c"))
    talk.step(harness.now, 0)
    gate.admission = Admission(refused=DENIED, version=1)
    harness.resume(talk)
    assert sliced == ["first"]
    assert answer(taken(talk), ListGroupsResponse, 4).error_code == DENIED


def test_a_bug_after_a_wait_breaks_the_conversation(harness: Harness, monkeypatch: pytest.MonkeyPatch) -> None:
    talk = harness.talk()
    talk.receive_data(frame_of(fetch(wait_ms=500), FETCH, 1, "c"))
    harness.resume(talk)
    (parked,) = talk.parked

    def fails() -> None:
        raise RuntimeError("a bug")

    parked.then = fails
    talk.answer_parked(parked, harness.now)
    assert talk.ending is not None and talk.ending.is_broken


def test_refused_acks_0_produce_ends_the_conversation(harness: Harness) -> None:
    talk = harness.talk(gate=RecordingGate(Admission(refused=DENIED)))
    talk.receive_data(frame_of(produce(acks=0), PRODUCE, 1, "c"))
    harness.resume(talk)
    assert talk.ending is not None and isinstance(talk.ending.reason, ConnectionAbortedError)
