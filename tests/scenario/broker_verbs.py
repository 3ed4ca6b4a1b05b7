"""What happens to the broker itself, and to time."""

from __future__ import annotations

from odradek.wire.messages.create_topics import CreatableTopic, CreateTopicsRequest, CreateTopicsResponse
from scenario.world import World, clients, error, milliseconds, options


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
    response = world.harness.ask(request, 7, CreateTopicsResponse)
    assert response.topics[0].error_code == 0, error(response.topics[0].error_code)


def after(world: World, arguments: list[str]) -> None:
    """after 3s"""
    (text,) = arguments
    world.pass_time(milliseconds(text))


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


def disk(world: World, arguments: list[str]) -> None:
    """disk stalls, disk goes on"""
    world.is_stalled = arguments == ["stalls"]


def hang_up(world: World, arguments: list[str]) -> None:
    """hang-up a ...: a client's connections break while it waits."""
    for one in arguments:
        for who in clients(one):
            world.hang_up(who)


VERBS = {
    "broker": broker,
    "topic": topic,
    "after": after,
    "restart": restart,
    "kill": kill,
    "disk": disk,
    "hang-up": hang_up,
}
