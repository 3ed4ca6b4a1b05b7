"""`python -m sim.play SEED`, with PYTHONPATH=tests: build the world of a seed, play it, and print its history.

For several seeds, a digest of each history is printed.

A world is a broker, its clients, and the events that happen to them. For some virtual minutes there are faults; then
everything is healed, all clients complete their work, and the whole log is read once more for the checks.
"""

from __future__ import annotations

import hashlib
import sys
import traceback
from collections.abc import Callable, Sequence
from functools import partial
from random import Random

from odradek.base.units import BrokerId, TopicName
from odradek.core.configs.broker_configs import BrokerConfigs
from odradek.core.coordinators.state_topics import ALONE
from sim.checks import problems
from sim.faults import Faults
from sim.history import History, failure
from sim.simadmin import SimAdmin
from sim.simbroker import PORT, Prepare, SimBroker
from sim.simcleaning import SimCleaning
from sim.simclients import Environment, SimClient
from sim.simclock import MILLISECOND_US, SECOND_US, SimClock, SimNode
from sim.simcompactor import SimCompactor
from sim.simconsumers import SimConsumer
from sim.simdisk import Folder, SimDisk
from sim.simgroups import SimMember
from sim.simnet import SimNetwork
from sim.simprocessors import SimProcessor, SimSuccessor
from sim.simproducers import SimPlainProducer, SimProducer
from sim.simtree import SimTreeServer

DURABLE, LOOSE, TRANSACTIONAL = TopicName("durable"), TopicName("loose"), TopicName("transactional")
BROKER = "broker-1"
FAULTS_US = (20 * SECOND_US, 50 * SECOND_US)
DRAIN_US_MAX = 180 * SECOND_US


class World:
    """Everything that one seed determines."""

    def __init__(self, seed: int, prepare: Prepare | None = None, faults: Sequence[str] = ()) -> None:
        self.seed = seed
        self.random = Random(f"world {seed}")
        self.clock = SimClock()
        self.network = SimNetwork(self.clock, Random(f"network {seed}"))
        self.history = History(seed, lambda: self.clock.now_us)
        delays = Random(f"watches {seed}")
        self.tree = SimTreeServer(self.clock, lambda: delays.randrange(20 * MILLISECOND_US))
        partitions = self.random.randrange(1, 4)
        topics = {
            DURABLE: partitions,
            LOOSE: self.random.randrange(1, 3),
            TRANSACTIONAL: self.random.randrange(1, 4),
        }
        configs = {"internal.segment.bytes": self.random.choice(("1500", "8000", "1073741824"))}
        self.cleaning = SimCleaning(self.history)
        configs |= self.cleaning.topic_configs
        self.environment = Environment(
            self.clock, self.network, self.history, (BROKER, PORT), topics, configs, self.cleaning.keys
        )
        self.broker = SimBroker(
            BrokerId(1),
            self.node(BROKER),
            self.network,
            self.tree,
            BrokerConfigs.parse(self._configs() | self.cleaning.broker_configs, defaults=ALONE),
            session_dies_with_process=self.random.random() < 0.7,
            prepare=prepare,
        )
        self.broker.watch_cleaner = self.cleaning.watch
        self.clients = self._clients()
        self.faults = Faults(self.random, self.clock, self.network, self.broker, self.history, only=faults)

    def _configs(self) -> dict[str, str]:
        choose = self.random.choice
        return {
            "log.roll.ms": choose(("5000", "20000", "604800000")),
            "log.cleaner.backoff.ms": "500",
            "log.index.interval.bytes": choose(("100", "4096")),
            "offsets.topic.num.partitions": "2",
            "transaction.state.log.num.partitions": "2",
            "transaction.abort.timed.out.transaction.cleanup.interval.ms": choose(("500", "10000")),
            "group.initial.rebalance.delay.ms": choose(("0", "300")),
            "max.incremental.fetch.session.cache.slots": choose(("1", "3", "1000")),
        }

    def node(self, name: str) -> SimNode:
        node = SimNode(self.clock, name, Random(f"{name} {self.seed}"))
        self.network.add(node)
        return node

    def _clients(self) -> list[SimClient]:
        """Return the clients, each on its own node."""
        clients: list[SimClient] = []
        for number in range(self.random.randrange(1, 4)):
            name = f"producer-{number}"
            topic = LOOSE if number == 1 and self.random.random() < 0.5 else DURABLE
            clients.append(SimProducer(name, self.node(name), self.environment, topic))
        if self.random.random() < 0.6:
            clients.append(SimPlainProducer("plain", self.node("plain"), self.environment, LOOSE))
        for number in range(self.random.randrange(1, 3)):
            name = f"consumer-{number}"
            is_read_committed = self.random.random() < 0.5
            node = self.node(name)
            clients.append(
                SimConsumer(
                    name, node, self.environment, list(self.environment.topics), read_committed=is_read_committed
                )
            )
        for number in range(self.random.choice((0, 0, 1, 2, 3))):
            name = f"member-{number}"
            clients.append(SimMember(name, self.node(name), self.environment, DURABLE))
        for number in range(self.random.choice((0, 1, 1, 2))):
            clients += self._transactors(number)
        if self.cleaning.is_requested:
            clients.append(SimCompactor("compactor", self.node("compactor"), self.environment))
        return clients

    def _transactors(self, number: int) -> list[SimClient]:
        """Return one transactional producer, and sometimes a second instance that takes over its id."""
        name, transactional_id = f"transactor-{number}", f"transactions-{number}"
        source = DURABLE if self.random.random() < 0.5 else None
        first = SimProcessor(name, self.node(name), self.environment, TRANSACTIONAL, transactional_id, source=source)
        if self.random.random() < 0.5:
            return [first]
        name = f"successor-{number}"
        second = SimSuccessor(name, self.node(name), self.environment, TRANSACTIONAL, transactional_id, source=source)
        return [first, second.take_over_from(first)]

    # Playing.

    def play(self) -> list[str]:
        """Play the world, and return its broken guarantees; none if it is correct."""
        try:
            stuck = self._run()
        except Exception as broken:  # Raised by a client, which checks while it reads, or by the broker.
            self.history.add("world", "broken", traceback.format_exc())
            return [str(broken) if isinstance(broken, AssertionError) else repr(broken)]
        self._finish()
        return stuck or problems(self.history)

    def _run(self) -> list[str]:
        """Run with faults, then without; return the clients that have not finished."""
        self.broker.start()
        admin = SimAdmin("admin", self.node("admin"), self.environment)
        admin.begin()
        if not self._run_while(lambda: not admin.is_done):
            return ["the topics were not made"]
        for client in self.clients:
            client.begin()
        until_us = self.clock.now_us + self.random.randrange(*FAULTS_US)
        self.faults.begin(until_us)
        self.clock.run_until(until_us)
        self.faults.heal()
        self.history.add("world", "healed")
        self._run_while(lambda: not self.broker.is_running)
        for wave in (self._writers(), self._readers(), self._compactors()):
            for client in wave:
                client.drain()
            self._run_while(partial(_are_busy, wave))
            stuck = [f"{client.name} has not come to an end" for client in wave if not client.is_done]
            if stuck:
                return stuck
        return self._read_all()

    def _writers(self) -> list[SimClient]:
        return [client for client in self.clients if client.writes]

    def _readers(self) -> list[SimClient]:
        return [client for client in self.clients if not client.writes and not isinstance(client, SimCompactor)]

    def _compactors(self) -> list[SimClient]:
        return [client for client in self.clients if isinstance(client, SimCompactor)]

    def _read_all(self) -> list[str]:
        for name, is_read_committed in (("final", False), ("committed", True)):
            topics, node = list(self.environment.topics), self.node(name)
            final = SimConsumer(name, node, self.environment, topics, is_final=True, read_committed=is_read_committed)
            final.begin()
            if not self._run_while(lambda final=final: not final.is_done):  # type: ignore[misc]
                return [f"not all could be read at the end: {name}"]
        self.broker.on_ended = lambda: None
        self.broker.stop()
        self._run_while(lambda: self.broker.is_running)
        return ["the broker did not stop"] if self.broker.is_running else []

    def _run_while(self, condition: Callable[[], bool]) -> bool:
        return self.clock.run_while(condition, self.clock.now_us + DRAIN_US_MAX)

    def _finish(self) -> None:
        self.history.files = digest_of(self.broker.disk)
        self.history.traffic = self.network.digest.hexdigest()


def _are_busy(clients: list[SimClient]) -> bool:
    return not all(client.is_done for client in clients)


def digest_of(disk: SimDisk) -> str:
    found = hashlib.sha256()
    for path, folder in sorted(disk.folders.items()):
        found.update(_described(path, folder))
    return found.hexdigest()


def _described(path: str, folder: Folder) -> bytes:
    files = sorted(folder.live.items(), key=lambda item: item[0])
    return path.encode() + b"".join(
        name.encode() + (b"/" if node is None else bytes(node.live)) for name, node in files
    )


def main(seeds: list[int]) -> None:
    for seed in seeds:
        world = World(seed)
        found = world.play()
        print(world.history if len(seeds) == 1 else f"seed {seed} {world.history.digest}")
        if found:
            sys.exit(failure(seed, found))


if __name__ == "__main__":
    main([int(text) for text in sys.argv[1:]])
