"""The lifecycle of a test cluster's brokers."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Self

from odradek.app.config.server_config import settings
from odradek.app.serve.local_brokers import replicas_of_state
from odradek.base.units import BrokerId
from odradek.coordination.sqlite import SqliteTree
from odradek.core.kernel.cluster_view import ClusterView
from odradek.testing import tree_access as elections
from odradek.testing.agreement import Agreement
from odradek.testing.configuration import NO_CONFIGS, Value, cluster_texts
from odradek.testing.embedded_member import Member, run_concurrently
from odradek.testing.lifetime import Lifetime
from odradek.testing.network import Network


class ClusterLife(Lifetime):
    """Base of Cluster that starts and stops brokers 1, 2, 3 and so on with a shared metadata tree."""

    def __init__(
        self,
        configs: Mapping[str, Value] = NO_CONFIGS,
        *,
        brokers: int = 3,
        directory: str | os.PathLike[str] | None = None,
        **keywords: Value,
    ) -> None:
        """Create a cluster without starting it; raise ConfigError for an invalid configuration."""
        super().__init__()
        if brokers < 1:
            raise ValueError(f"a cluster must have at least one broker, not {brokers}")
        self._texts = cluster_texts(configs, keywords)
        self._count = brokers
        self._given_directory = None if directory is None else Path(directory).absolute()
        self._directory: Path | None = self._given_directory
        self._brokers: tuple[Member, ...] = ()
        self._network = Network(brokers)
        checked = settings(self._texts)  # Raises errors of the configuration.
        self._texts |= replicas_of_state(brokers, checked.configs)

    # Brokers.

    @property
    def brokers(self) -> Sequence[Member]:
        """Return the brokers, running or not, the same from the first start to the end."""
        if not self._brokers:
            raise RuntimeError("the cluster has not been started: it has no brokers")
        return self._brokers

    def __getitem__(self, broker_id: int) -> Member:
        """Return a broker by its id, which counts from 1."""
        for broker in self.brokers:
            if broker.id == broker_id:
                return broker
        raise IndexError(f"unknown broker {broker_id}: the brokers are 1 to {self._count}")

    def __iter__(self) -> Iterator[Member]:
        return iter(self.brokers)

    @property
    def address(self) -> str:
        """Return the addresses of all brokers for bootstrap.servers."""
        return ",".join(broker.address for broker in self.brokers)

    bootstrap_servers = address

    @property
    def directory(self) -> Path:
        """Return the directory with the brokers' directories and the shared metadata."""
        if self._directory is None:
            raise RuntimeError("the cluster has not been started: it has no directory")
        return self._directory

    # Starting and stopping.

    def start(self) -> Self:
        """Start all stopped brokers concurrently and return when each broker knows all others.

        Raise the error that prevents a broker from starting, after closing the cluster.
        """
        if self._directory is None:
            self._directory = Path(tempfile.mkdtemp(prefix="odradek-"))
        try:
            if not self._brokers:
                self._close_at_exit()
                self._brokers = tuple(map(self._member, range(1, self._count + 1)))
            run_concurrently(Member.start, [broker for broker in self._brokers if not broker.is_running])
            self._settle()
        except BaseException:
            self.close()
            raise
        return self

    def stop(self) -> None:
        """Stop all brokers as Broker.stop does."""
        run_concurrently(Member.stop, self._brokers)

    def kill(self) -> None:
        """Kill all brokers as Broker.kill does."""
        run_concurrently(Member.kill, self._brokers)

    def restart(self) -> None:
        self.stop()
        self.start()

    def close(self) -> None:
        """Stop all brokers, release their ports, and remove a temporary directory; `with` calls this."""
        brokers, self._brokers = self._brokers, ()
        self._network.clear()
        self._network = Network(self._count)
        try:
            run_concurrently(Member.close, brokers)
        finally:
            self._was_closed()
            if self._given_directory is None and self._directory is not None:
                shutil.rmtree(self._directory, ignore_errors=True)
                self._directory = None

    def check(self) -> None:
        """Raise BrokerFailed if a broker has failed."""
        if self._brokers:
            self._agreement.check()

    # Metadata tree.

    @property
    def _agreement(self) -> Agreement:
        return Agreement(self.brokers, self._network)

    def _session(self) -> SqliteTree:
        """Open a session of the metadata tree, which also expires the sessions of killed brokers."""
        return elections.session(self.directory, is_durable=self._given_directory is not None)

    def _wait(self, condition: Callable[[ClusterView], bool], failure: str) -> None:
        """Wait until the condition holds for all running brokers."""
        with self._session() as tree:
            self._agreement.wait(lambda: self._agreement.know(tree, condition), failure)

    def _settle(self) -> None:
        with self._session() as tree:
            self._agreement.settle(tree)

    def _member(self, number: int) -> Member:
        is_durable = self._given_directory is not None
        return Member(BrokerId(number), self._texts, self.directory, self._network, is_durable=is_durable)
