"""The cluster that a test holds: several brokers that elect a controller.  docs/TESTING.md has the examples."""

from __future__ import annotations

import os
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Self

from odradek.app.config import settings
from odradek.base.errors import ErrorCode, Refused
from odradek.base.units import BrokerId
from odradek.coordination.sqlite import SqliteTree
from odradek.core.cluster import ClusterView
from odradek.testing import elections
from odradek.testing.configuration import NO_CONFIGS, Value, texts_of_all
from odradek.testing.host import SECONDS_MAX, BrokerFailed
from odradek.testing.lifetime import Lifetime
from odradek.testing.member import (
    Member,
    at_once,
    controlled_by,
    has_brokers,
    has_topic,
    lacks_topic,
    topic_named,
)

LOOK_SECONDS = 0.005


class Cluster(Lifetime):
    """Brokers 1, 2, 3 and so on in this process, each on a thread of its own; for `with`, or `async with`.

    All have the same configuration, which is given as to Broker.  Their data lies in a folder for each, below a
    `directory` that is kept, or a temporary one; the metadata they share is beside them.  Topics have one replica:
    while a broker is down, nobody leads its partitions.

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
        settings(self._texts)  # What is wrong with the configuration is said here.

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
                self._brokers = tuple(self._member(number) for number in range(1, self._count + 1))
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
        try:
            at_once(Member.close, brokers)
        finally:
            self._was_closed()
            if self._given_directory is None and self._directory is not None:
                shutil.rmtree(self._directory, ignore_errors=True)
                self._directory = None

    def check(self) -> None:
        """Raises BrokerFailed if a broker has stopped by itself."""
        for broker in self._brokers:
            broker.check()

    # The controller.

    @property
    def controller(self) -> Member:
        """The broker that is the controller.  Waits until there is one, and every running broker knows it."""
        with self._session() as tree:
            return self._elected(tree)

    def move_controller(self) -> Member:
        """Has another broker become the controller, and returns it.

        As is done with Apache Kafka under ZooKeeper, /controller is deleted: whoever is first to see that becomes the
        controller.  If it is the same broker again, it is deleted again.
        """
        with self._session() as tree:
            before = self._elected(tree)
            if len(self._running()) < 2:
                raise RuntimeError("there is no other broker that could be the controller")
            elections.until_another(tree, before.id, self.check)
            return self._elected(tree)

    def _session(self) -> SqliteTree:
        """Begins a session of the metadata tree, which also ends those of killed brokers."""
        return elections.session(self.directory, is_durable=self._given_directory is not None)

    def _elected(self, tree: SqliteTree) -> Member:
        def is_elected() -> bool:
            elected = elections.controller(tree)
            return elected is not None and self[elected].is_running and self._know(controlled_by(elected))

        self._wait(is_elected, "the brokers have elected no controller")
        elected = elections.controller(tree)
        return self._elected(tree) if elected is None else self[elected]

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
            self._wait(partial(self._know, partial(has_topic, made)), f"not every broker knows topic {name}")

    def delete_topic(self, name: str) -> None:
        """Deletes a topic; no running broker knows it any more.  Raises Refused.

        A broker that is down deletes its partitions when it is back; until then no topic of that name can be created.
        """
        gone = self.controller.ask(lambda view: topic_named(view, name))
        self._ask_controller(partial(Member.delete_topic, name=name))
        if gone is not None:
            self._wait(partial(self._know, partial(lacks_topic, gone)), f"not every broker has dropped topic {name}")
        if all(broker.is_running for broker in self.brokers):
            with self._session() as tree:
                self._wait(partial(elections.is_free, tree, name), f"topic {name} is still being deleted")

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

    # Waiting.

    def _settle(self) -> None:
        """Waits until every running broker knows which brokers run, and the controller."""
        with self._session() as tree:
            self._elected(tree)
        self._wait(lambda: self._know(has_brokers(self._running())), "not every broker knows of all")

    def _running(self) -> set[BrokerId]:
        return {broker.id for broker in self.brokers if broker.is_running}

    def _know(self, is_so: Callable[[ClusterView], bool]) -> bool:
        """True if it holds for all brokers that are running."""
        return all(broker.ask(is_so) for broker in self.brokers if broker.is_running)

    def _wait(self, is_so: Callable[[], bool], otherwise: str) -> None:
        deadline = time.monotonic() + SECONDS_MAX
        while not is_so():
            self.check()
            if time.monotonic() > deadline:
                raise BrokerFailed(f"{otherwise}, after {SECONDS_MAX} s")
            time.sleep(LOOK_SECONDS)

    def _member(self, number: int) -> Member:
        return Member(number, self._texts, self.directory, is_durable=self._given_directory is not None)
