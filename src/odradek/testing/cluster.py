"""The cluster that a test holds: several brokers that elect a controller.  docs/TESTING.md has the examples."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Self

from odradek.app.brokers import replicas_of_state
from odradek.app.config import settings
from odradek.base.errors import ErrorCode, Refused
from odradek.base.units import BrokerId
from odradek.coordination.sqlite import SqliteTree
from odradek.core.cluster import ClusterView
from odradek.testing import elections
from odradek.testing.agreement import Agreement
from odradek.testing.configuration import NO_CONFIGS, Value, texts_of_all
from odradek.testing.lifetime import Lifetime
from odradek.testing.member import (
    Member,
    at_once,
    has_topic,
    lacks_topic,
    topic_named,
)
from odradek.testing.network import Network, Node, Partition, Shared, cuts_between

Named = Member | int | Shared  # A broker, itself or its id, or the tree.


class Cluster(Lifetime):
    """Brokers 1, 2, 3 and so on in this process, each on a thread of its own; for `with`, or `async with`.

    All have the same configuration, which is given as to Broker.  Their data lies in a folder for each, below a
    `directory` that is kept, or a temporary one; the metadata they share is beside them.  While a
    broker is down, nobody leads the partitions that have no other replica.

    Methods block, and may be called from any thread.  If a broker comes to an end by a failure of its own, the next
    method that is called raises BrokerFailed, and the end of the `with` does.
    """

    def __init__(
        self,
        configs: Mapping[str, Value] = NO_CONFIGS,
        *,
        brokers: int = 3,
        directory: str | os.PathLike[str] | None = None,
        **keywords: Value,
    ) -> None:
        """Raises ConfigError for what no broker of Kafka could be configured to."""
        super().__init__()
        if brokers < 1:
            raise ValueError(f"a cluster has one broker or more, not {brokers}")
        self._texts = texts_of_all(configs, keywords)
        self._count = brokers
        self._given_directory = None if directory is None else Path(directory).absolute()
        self._directory: Path | None = self._given_directory
        self._brokers: tuple[Member, ...] = ()
        self._network = Network(brokers)
        checked = settings(self._texts)  # What is wrong with the configuration is said here.
        self._texts |= replicas_of_state(brokers, checked.configs)

    # Its brokers.

    @property
    def brokers(self) -> Sequence[Member]:
        """The brokers, whether they run or not; the same from the first start to the end."""
        if not self._brokers:
            raise RuntimeError("a cluster that was not started has no brokers yet")
        return self._brokers

    def __getitem__(self, broker_id: int) -> Member:
        """Returns a broker by its id, which counts from 1."""
        for broker in self.brokers:
            if broker.id == broker_id:
                return broker
        raise IndexError(f"the brokers are 1 to {self._count}: there is no {broker_id}")

    def __iter__(self) -> Iterator[Member]:
        return iter(self.brokers)

    @property
    def address(self) -> str:
        """The addresses of all brokers, as clients take them for bootstrap.servers."""
        return ",".join(broker.address for broker in self.brokers)

    bootstrap_servers = address

    @property
    def directory(self) -> Path:
        """The folder with the brokers' own and the metadata they share."""
        if self._directory is None:
            raise RuntimeError("a cluster that was not started has no directory yet")
        return self._directory

    # Starting and stopping.

    def start(self) -> Self:
        """Starts the brokers that are not running, at the same time; returns when each knows of all.

        Raises what keeps a broker from starting, and has closed the cluster then.
        """
        if self._directory is None:
            self._directory = Path(tempfile.mkdtemp(prefix="odradek-"))
        try:
            if not self._brokers:
                self._close_at_exit()
                self._brokers = tuple(map(self._member, range(1, self._count + 1)))
            at_once(Member.start, [broker for broker in self._brokers if not broker.is_running])
            self._settle()
        except BaseException:
            self.close()
            raise
        return self

    def stop(self) -> None:
        """Stops all brokers, as each one's `stop`."""
        at_once(Member.stop, self._brokers)

    def kill(self) -> None:
        """Kills all brokers, as each one's `kill`."""
        at_once(Member.kill, self._brokers)

    def restart(self) -> None:
        self.stop()
        self.start()

    def close(self) -> None:
        """Stops all brokers, gives their ports back, and removes a temporary directory.  `with` does it."""
        brokers, self._brokers = self._brokers, ()
        self._network.clear()
        self._network = Network(self._count)
        try:
            at_once(Member.close, brokers)
        finally:
            self._was_closed()
            if self._given_directory is None and self._directory is not None:
                shutil.rmtree(self._directory, ignore_errors=True)
                self._directory = None

    def check(self) -> None:
        """Raises BrokerFailed if a broker has stopped by itself."""
        if self._brokers:
            self._agreement.check()

    # The controller.

    @property
    def controller(self) -> Member:
        """The broker that is the controller.  Waits until there is one, and every running broker knows it."""
        with self._session() as tree:
            return self._agreement.controller(tree)

    def move_controller(self) -> Member:
        """Has another broker become the controller, and returns it.

        As is done with Apache Kafka under ZooKeeper, /controller is deleted: whoever is first to see that becomes the
        controller.  If it is the same broker again, it is deleted again.
        """
        with self._session() as tree:
            before = self._agreement.controller(tree)
            if len(self._agreement.registered()) < 2:
                raise RuntimeError("there is no other broker that could be the controller")
            elections.until_another(tree, before.id, self.check)
            return self._agreement.controller(tree)

    # Partitions.

    def partition(self, *sides: Named | Collection[Named], one_way: bool = False) -> Partition:
        """Cuts brokers off from each other, and from the metadata tree, until it is healed; returns what heals it.

        Who is on different sides can't reach each other, as in a network that drops packets: connections stay, to
        connect takes until healed, and requests get no answer.  A side is a broker, or several, and may have `tree`
        with it.  One side alone is cut off from all other brokers and from the tree.  Who is on no side reaches all.

        One way: what the first side sends does not reach the others, while what they send reaches it.  Who can't
        speak with the tree both ways has lost it.

        Who is cut off from the tree is registered until `zookeeper.session.timeout.ms` is over.  Clients reach every
        broker.  Raises ValueError.
        """
        found = [frozenset(map(_node, _members(side))) for side in sides]
        return self._network.add(cuts_between(found, self._network.nodes, one_way=one_way), self._healed)

    @property
    def tree(self) -> Shared:
        """The metadata tree that brokers share, for a side of `partition`: who loses it has lost ZooKeeper."""
        return Shared.TREE

    def heal(self) -> None:
        """Ends all partitions.

        Returns when every running broker is registered and knows of all, and of a leader for what they hold.
        """
        self._network.clear()
        self._healed()

    def _healed(self) -> None:
        with self._session() as tree:
            self._agreement.heal(tree)

    # Its tree.

    @property
    def _agreement(self) -> Agreement:
        return Agreement(self.brokers, self._network)

    def _session(self) -> SqliteTree:
        """Begins a session of the metadata tree, which also ends those of killed brokers."""
        return elections.session(self.directory, is_durable=self._given_directory is not None)

    def _wait(self, is_so: Callable[[ClusterView], bool], otherwise: str) -> None:
        """Waits until it holds for all brokers that run."""
        with self._session() as tree:
            self._agreement.wait(lambda: self._agreement.know(tree, is_so), otherwise)

    def _settle(self) -> None:
        with self._session() as tree:
            self._agreement.settle(tree)

    # Topics.

    def create_topic(self, name: str, partitions: int | None = None, configs: Mapping[str, Value] = NO_CONFIGS) -> None:
        """Creates a topic, on the brokers that run; `partitions` None is `num.partitions`.

        Returns when every running broker knows it.  Raises Refused, with the error code that a client would get.
        """
        self._settle()  # A partition that is given to a broker that has just been killed is not made before it is back.
        creation = partial(Member.create_topic, name=name, partitions=partitions, configs=configs)
        controller = self._ask_controller(creation)
        made = controller.ask(lambda view: topic_named(view, name))
        if made is not None:  # Nobody has deleted it yet.
            self._wait(partial(has_topic, made), f"not every broker knows topic {name}")

    def delete_topic(self, name: str) -> None:
        """Deletes a topic; no running broker knows it any more.  Raises Refused.

        A broker that is down deletes its partitions when it is back; until then no topic of that name can be created.
        """
        gone = self.controller.ask(lambda view: topic_named(view, name))
        self._ask_controller(partial(Member.delete_topic, name=name))
        if gone is not None:
            self._wait(partial(lacks_topic, gone), f"not every broker has dropped topic {name}")
        with self._session() as tree:
            if len(self._agreement.told(tree)) == self._count:
                self._agreement.wait(partial(elections.is_free, tree, name), f"topic {name} is still being deleted")

    def topics(self) -> list[str]:
        return self.controller.topics()

    def _ask_controller(self, ask: Callable[[Member], None]) -> Member:
        """Returns the controller that was asked."""
        while True:
            controller = self.controller
            try:
                ask(controller)
            except Refused as refused:
                if refused.code != ErrorCode.NOT_CONTROLLER:
                    raise
            else:
                return controller

    def _member(self, number: int) -> Member:
        is_durable = self._given_directory is not None
        return Member(BrokerId(number), self._texts, self.directory, self._network, is_durable=is_durable)


def _members(side: Named | Collection[Named]) -> Collection[Named]:
    return (side,) if isinstance(side, Member | int | Shared) else side


def _node(named: Named) -> Node:
    return named.id if isinstance(named, Member) else named if isinstance(named, Shared) else BrokerId(named)
