"""Partitions grouped by topic, as in the messages between a controller and its brokers."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Protocol, TypeVar

from odradek.api.request.sliced_response import CHEAP, Parts
from odradek.base.errors import ErrorCode, error_code
from odradek.base.units import BrokerId, LeaderEpoch, TopicName, TopicPartition
from odradek.base.uuids import ZERO_UUID, Uuid
from odradek.core.kernel.cluster_view import RECOVERED, LeaderAndIsr

T = TypeVar("T")
Element = TypeVar("Element")
Errors = Mapping[TopicPartition, ErrorCode]


class PartitionError(Protocol):
    """One partition in a response."""

    partition_index: int
    error_code: int


class PartitionState(Protocol):
    """One partition in a request; `topic_name` is set if the request does not group by topic."""

    topic_name: str
    partition_index: int


State = TypeVar("State", bound=PartitionState)
State_co = TypeVar("State_co", bound=PartitionState, covariant=True)


class TopicStates(Protocol[State_co]):
    """The partitions of one topic in a request."""

    @property
    def topic_name(self) -> str: ...

    @property
    def topic_id(self) -> Uuid: ...

    @property
    def partition_states(self) -> Sequence[State_co]: ...


def by_partition(
    ungrouped: Iterable[State], topics: Iterable[TopicStates[State]], value: Callable[[State], T]
) -> Parts[dict[TopicPartition, T]]:
    """Return the values of a request's partitions, in either form.

    If a partition occurs more than once, the last value wins.
    """
    values: dict[TopicPartition, T] = {}
    for state in ungrouped:
        values[TopicPartition(TopicName(state.topic_name), state.partition_index)] = value(state)
        yield
    for topic in topics:
        name = TopicName(topic.topic_name)
        for state in topic.partition_states:
            values[TopicPartition(name, state.partition_index)] = value(state)
            yield
        yield
    return values


class GroupedRequest(Protocol[State_co]):
    """A controller's request about partitions, in either form."""

    @property
    def ungrouped_partition_states(self) -> Sequence[State_co]: ...

    @property
    def topic_states(self) -> Sequence[TopicStates[State_co]]: ...


def states_and_ids(
    request: GroupedRequest[State], value: Callable[[State], T]
) -> Parts[tuple[dict[TopicPartition, T], dict[TopicName, Uuid]]]:
    """Return the values of a request's partitions and the ids of its topics, which older requests lack."""
    partitions = yield from by_partition(request.ungrouped_partition_states, request.topic_states, value)
    ids = yield from topic_ids(request.topic_states)
    return partitions, ids


class LeaderState(Protocol):
    """The leader and ISR of a partition in a request."""

    controller_epoch: int
    leader: int
    leader_epoch: int
    isr: list[int]


def leader_and_isr(state: LeaderState, partition_epoch: int, recovery: int = RECOVERED) -> LeaderAndIsr:
    """Return a partition's state; the name of its epoch differs between messages."""
    return LeaderAndIsr(
        BrokerId(state.leader),
        LeaderEpoch(state.leader_epoch),
        brokers(state.isr),
        recovery,
        state.controller_epoch,
        partition_epoch,
    )


def brokers(ids: Iterable[int]) -> tuple[BrokerId, ...]:
    return tuple(map(BrokerId, ids))


def topic_ids(topics: Iterable[TopicStates[PartitionState]]) -> Parts[dict[TopicName, Uuid]]:
    """Return the topics' ids, which older requests lack."""
    ids: dict[TopicName, Uuid] = {}
    for number, topic in enumerate(topics, 1):
        if topic.topic_id != ZERO_UUID:
            ids[TopicName(topic.topic_name)] = topic.topic_id
        if not number % CHEAP:
            yield
    return ids


def each(elements: Iterable[Element], value: Callable[[Element], T]) -> Parts[tuple[T, ...]]:
    """Return the value of each element."""
    values = []
    for element in elements:
        values.append(value(element))
        yield
    return tuple(values)


def by_topic(states: Mapping[TopicPartition, T]) -> dict[TopicName, list[T]]:
    """Return the partitions' states grouped by topic, each topic once."""
    grouped: dict[TopicName, list[T]] = {}
    for partition, state in states.items():
        grouped.setdefault(partition.topic, []).append(state)
    return grouped


def topic_states(
    states: Mapping[TopicPartition, State], ids: Mapping[TopicName, Uuid], make: Callable[..., T]
) -> list[T]:
    """Return `make`'s result for each topic, from its name, its id and its partitions' states."""
    return [
        make(topic_name=name, topic_id=ids.get(name, ZERO_UUID), partition_states=states_of_topic)
        for name, states_of_topic in by_topic(states).items()
    ]


def errors_by_partition(answers: Iterable[tuple[str, PartitionError]]) -> Errors:
    """Return the partitions that have an error in an answer, by topic name."""
    return {
        TopicPartition(TopicName(name), partition_error.partition_index): error_code(partition_error.error_code)
        for name, partition_error in answers
        if partition_error.error_code
    }
