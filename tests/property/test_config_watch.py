"""Configuration changes with lost connections, notices and garbage: a broker ends with the tree's values."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from odradek.base.units import TopicName
from odradek.coordination import tree_layout as layout
from odradek.coordination.tree import Tree
from odradek.core.broker.effects import ConfigOwner
from sim.simclock import SimClock
from sim.simtree import SimTree, SimTreeServer
from support.config_watching import ALL, BROKER, SET, Keys, Watching, Writer

TOPICS = ("t", "u", "v")
FAR = 1 << 50  # A far-off clock makes all notices old.
OWNERS = (*(ConfigOwner(is_topic=True, name=name) for name in TOPICS), BROKER, ALL)
PATHS = {
    **{f"topics/{name}": layout.config(layout.TOPIC_CONFIGS, name) for name in TOPICS},
    **{f"brokers/{name}": layout.config(layout.BROKER_CONFIGS, name) for name in ("1", layout.DEFAULT_ENTITY)},
}


def keys_of(owner: ConfigOwner, number: int) -> Keys:
    names = ("retention.ms", "segment.ms") if owner.is_topic else ("log.retention.bytes", "log.roll.ms")
    return [(names[number % 2], SET, str(number + 1))]


class World:
    """A watching broker and another one, on a tree whose connections can be lost."""

    def __init__(self, directory: Path) -> None:
        self.clock = SimClock()
        server = SimTreeServer(self.clock, lambda: 0)
        self.line: SimTree = server.open()
        tree: Tree = self.line
        self.writer = Writer(server.open())
        self.watching = Watching(tree, directory / "log")
        self.fresh = Watching(server.open(), directory / "fresh")
        self.watching.know(*self.writer.make(*TOPICS))
        self.watching.begin()
        self.watching.start()

    def deliver(self) -> None:
        self.clock.run_until(self.clock.now_us)
        self.watching.apply_changes()

    def retry(self) -> None:
        self.watching.read()

    def change(self, owner: ConfigOwner, number: int, now: int) -> None:
        self.writer.try_to_alter({owner: keys_of(owner, number)}, now)  # Garbage is not changed.

    def change_here(self, owner: ConfigOwner, number: int) -> None:
        if not self.line.is_cut_off:
            self.watching.alter_here({owner: keys_of(owner, number)})

    def spoil(self, entity: str, data: bytes) -> None:
        self.writer.put(PATHS[entity], data)
        self.writer.notice(layout.encode_config_change(entity))

    def notice(self, data: bytes) -> None:
        self.writer.notice(data)

    def lose(self) -> None:
        if not self.line.is_cut_off:
            self.line.cut_off()

    def find(self) -> None:
        if self.line.is_cut_off:
            self.line.reconnect()

    def forget_folder(self) -> None:
        tree = self.writer.tree
        for name in tree.children(layout.CONFIG_CHANGES):
            tree.delete(f"{layout.CONFIG_CHANGES}/{name}")
        tree.delete(layout.CONFIG_CHANGES)
        tree.create(layout.CONFIG_CHANGES)

    def end(self) -> None:
        """Reconnect all brokers, and wait until nothing happens any more."""
        self.find()
        for _ in range(3):
            self.deliver()
        readings = self.watching.readings
        assert not readings or readings[-1] is not None, "what could not be read is read by now"

    def check(self) -> None:
        for name in TOPICS:
            data, _ = self.writer.tree.get(PATHS[f"topics/{name}"])
            assert dict(self.watching.set_on(name)) == layout.decode_config(data)
            configs = self.watching.harness.configs.for_topic(layout.decode_config(data))
            assert self.watching.log_config(name).retention_ms == configs.retention_ms
            assert self.watching.log_config(name).segment_ms == configs.segment_ms
        self.fresh.begin()
        assert self.watching.harness.configs.describe() == self.fresh.harness.configs.describe()
        for each in (self.watching, self.fresh):
            assert TopicName("w") not in each.harness.broker.view.topics


Act = Callable[[World], None]
NUMBERS = st.integers(0, 9)
GARBAGE = st.one_of(
    st.binary(max_size=20),
    st.sampled_from(
        [
            layout.encode_config({"retention.ms": "soon", "log.retention.ms": "soon", "of.another": "kind"}),
            layout.encode_config({"log.roll.ms": "77", "segment.ms": "77", "num.partitions": "3"}),
            layout.encode_config_change("users/alice"),
            layout.encode_config_change("topics/w"),
            layout.encode_config_change("topics/../x"),
            b'{"version":1,"entity_type":"topics","entity_name":"t"}',
        ]
    ),
)
CHANGE = st.builds(
    lambda owner, number, now: lambda world: world.change(owner, number, now),
    st.sampled_from(OWNERS),
    NUMBERS,
    st.sampled_from([0, 0, 0, FAR]),
)
ACTS: st.SearchStrategy[Act] = st.one_of(
    CHANGE,
    CHANGE,
    st.builds(
        lambda owner, number: lambda world: world.change_here(owner, number), st.sampled_from(OWNERS[:3]), NUMBERS
    ),
    st.builds(lambda entity, data: lambda world: world.spoil(entity, data), st.sampled_from(list(PATHS)), GARBAGE),
    st.builds(lambda data: lambda world: world.notice(data), GARBAGE),
    st.sampled_from([World.deliver, World.deliver, World.retry, World.lose, World.find, World.forget_folder]),
)


@settings(max_examples=100)
@given(acts=st.lists(ACTS, max_size=25), numbers=st.tuples(*[NUMBERS] * len(PATHS)))
def test_a_broker_ends_with_the_configuration_of_the_tree(acts: list[Act], numbers: tuple[int, ...]) -> None:
    with tempfile.TemporaryDirectory(prefix="odradek-test-") as directory:
        world = World(Path(directory))
        for act in acts:
            act(world)
        for (entity, path), number in zip(PATHS.items(), numbers, strict=True):
            if not is_readable(world, path):  # Then the broker has the former value, which no test knows.
                key = "retention.ms" if entity.startswith("topics/") else "log.roll.ms"
                world.spoil(entity, layout.encode_config({key: str(number + 1)}))
        world.end()
        world.check()


def is_readable(world: World, path: str) -> bool:
    if world.writer.tree.exists(path) is None:
        return True
    try:
        layout.decode_config(world.writer.tree.get(path)[0])
    except layout.BadZnodeError:
        return False
    return True
