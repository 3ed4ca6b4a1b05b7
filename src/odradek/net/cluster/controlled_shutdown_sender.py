"""Controlled shutdown: moves leaderships to other brokers before a stop.

It corresponds to Kafka's KafkaServer.controlledShutdown. The request is repeated, after a pause, as long as another
broker could take a remaining partition. If no partition here has a replica elsewhere, no request is sent, to keep the
stop short. A pause ends as soon as another broker leaves or becomes the controller. The sender does not wait for a
broker that left during the shutdown: brokers that stop simultaneously would wait for each other.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from collections.abc import Set as AbstractSet
from typing import TypeAlias

from odradek.base.errors import ErrorCode, Refused
from odradek.base.units import SECOND_MS, BrokerId, TopicPartition
from odradek.core.broker.broker import Broker
from odradek.core.kernel.cluster_view import ClusterView

_LOG = logging.getLogger(__name__)

ANSWER_SECONDS_MAX = 30  # controller.socket.timeout.ms
POLL_SECONDS = 0.05

Answer: TypeAlias = "Sequence[TopicPartition] | Refused"
SendRequest: TypeAlias = Callable[[Callable[[Answer], None]], None]


async def controlled_shutdown(broker: Broker, send_request: SendRequest) -> None:
    """Wait until others lead, no other can lead, or `controlled.shutdown.max.retries` is exhausted.

    `send_request` sends ControlledShutdown to the current controller. Its callback receives the partitions still led
    here, or an error.
    """
    if not broker.configs.bool("controlled.shutdown.enable"):
        return
    pause_seconds = broker.configs.int("controlled.shutdown.retry.backoff.ms") / SECOND_MS
    tries = broker.configs.int("controlled.shutdown.max.retries")
    initially_alive = frozenset(broker.view.brokers)
    while tries and has_other_replicas(broker.view, broker.id):
        controller, brokers = broker.view.controller, broker.view.brokers.keys()
        answer = await _answer(send_request)
        if not isinstance(answer, Refused) and not any(_may_move(broker, name, initially_alive) for name in answer):
            return
        reason = str(answer) if isinstance(answer, Refused) else f"this broker still leads {len(answer)} partitions"
        _LOG.warning("controlled shutdown attempt failed: %s", reason)
        tries -= 1
        if tries and await _is_changed(broker.view, controller, brokers, pause_seconds):
            tries += 1  # As far as is known, this attempt does not count as failed.


def _may_move(broker: Broker, name: TopicPartition, initially_alive: AbstractSet[BrokerId]) -> bool:
    """Return whether another broker may lead the partition: it is alive, or was away and may return."""
    topic = broker.view.topics.get(name.topic)
    if topic is None or name.partition >= len(topic.partitions):
        return False
    others = {*topic.partitions[name.partition].replicas} - {broker.id}
    return not others <= initially_alive - broker.view.brokers.keys()


async def _is_changed(view: ClusterView, controller: BrokerId, brokers: AbstractSet[BrokerId], seconds: float) -> bool:
    """Return True once the controller has changed or a broker has left; False if neither happens in time."""
    loop = asyncio.get_running_loop()
    until = loop.time() + seconds
    while view.controller == controller and brokers <= view.brokers.keys():
        if loop.time() >= until:
            return False
        await asyncio.sleep(min(POLL_SECONDS, seconds))
    return True


async def _answer(send_request: SendRequest) -> Answer:
    """Return the response, or Refused if there is none in time."""
    done: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()

    def on_answered(answer: Answer) -> None:
        if not done.done():
            done.set_result(answer)

    send_request(on_answered)
    await asyncio.wait([done], timeout=ANSWER_SECONDS_MAX)
    if not done.done():
        done.set_result(Refused(ErrorCode.REQUEST_TIMED_OUT, f"no response within {ANSWER_SECONDS_MAX} s"))
    return done.result()


def has_other_replicas(view: ClusterView, broker: BrokerId) -> bool:
    """Return whether a partition on the broker has a replica on another live broker."""
    alive = view.brokers.keys() - {broker}
    return any(
        broker in partition.replicas and not alive.isdisjoint(partition.replicas)
        for topic in view.topics.values()
        for partition in topic.partitions
    )
