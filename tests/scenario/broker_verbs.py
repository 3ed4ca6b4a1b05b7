"""Verbs for the broker itself, and for time."""

from __future__ import annotations

from odradek.base.units import DAY_MS, TimestampMs
from odradek.core.kernel.cluster_view import CONSUMER_OFFSETS, TRANSACTION_STATE
from odradek.wire.messages.create_topics import CreatableTopic, CreateTopicsRequest, CreateTopicsResponse
from scenario.world import World, clients, error, milliseconds, options
from support import cleaning


def broker(world: World, arguments: list[str]) -> None:
    """broker name=value ...: its settings."""
    world.configure(options(arguments)[1])


def topic(world: World, arguments: list[str]) -> None:
    """topic t [partitions=1]"""
    (name,), named = options(arguments)
    made = CreatableTopic(
        name=name, num_partitions=int(named.get("partitions", "1")), replication_factor=1, assignments=[], configs=[]
    )
    request = CreateTopicsRequest(topics=[made], timeout_ms=1000, validate_only=False)
    response = world.harness.request(request, 7, CreateTopicsResponse)
    assert response.topics[0].error_code == 0, error(response.topics[0].error_code)


def after(world: World, arguments: list[str]) -> None:
    """after 3s"""
    (text,) = arguments
    world.pass_time(milliseconds(text))


def clock(world: World, arguments: list[str]) -> None:
    """clock back 20min"""
    direction, text = arguments
    assert direction == "back"
    now = world.harness.now
    world.harness.now = now._replace(wall=TimestampMs(now.wall - milliseconds(text)))


def restart(world: World, arguments: list[str]) -> None:
    """restart: the broker stops, and starts again."""
    world.hang_up_all()
    world.harness.restart()
    world.is_stalled = False


def kill(world: World, arguments: list[str]) -> None:
    """kill: the same, without a stop."""
    world.hang_up_all()
    world.harness.kill()
    world.is_stalled = False


def compact(world: World, arguments: list[str]) -> None:
    """compact: of the state topics only the last record of each key is left, and tombstones are long gone."""
    now = world.harness.now.wall
    for name, partition in world.harness.broker.partitions.items():
        if name.topic in (CONSUMER_OFFSETS, TRANSACTION_STATE):
            partition.log.reaper.reap(now)
            partition.log.roll(now)
            for later in (now, now + 2 * DAY_MS):
                cleaning.compact(partition.log, TimestampMs(later))


def disk(world: World, arguments: list[str]) -> None:
    """disk stalls, disk goes on"""
    world.is_stalled = arguments == ["stalls"]


def hang_up(world: World, arguments: list[str]) -> None:
    """hang-up a ...: a client's connections break while it waits."""
    for one in arguments:
        for name in clients(one):
            world.hang_up(name)


VERBS = {
    "broker": broker,
    "topic": topic,
    "after": after,
    "clock": clock,
    "restart": restart,
    "kill": kill,
    "compact": compact,
    "disk": disk,
    "hang-up": hang_up,
}
