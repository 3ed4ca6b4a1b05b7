"""The broker that a test holds: its life, its address, its topics.  docs/TESTING.md has the examples."""

from __future__ import annotations

import asyncio
import os
import shutil
import tempfile
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any, Self

from odradek.app.config.server_config import Settings, settings
from odradek.app.serve.building import Running
from odradek.coordination.sqlite import SqliteTree
from odradek.testing import topic_queries as topics
from odradek.testing.configuration import NO_CONFIGS, Value, places, text, texts
from odradek.testing.faults import Faults
from odradek.testing.host import Host
from odradek.testing.injection import Injection
from odradek.testing.lifetime import Lifetime
from odradek.testing.reserved_port import HOST, Port


class Broker(Lifetime):
    """One broker in this process, on a thread and a loop of its own; for `with`, or `async with`.

    Configuration is that of a Kafka broker: `Broker(num_partitions=3)` or `Broker({"num.partitions": 3})`.  Without a
    `directory` the data lies in a temporary one, which is removed at the end, and no write waits for the disk.  A
    `directory` is kept, and written to as a broker in production writes.

    Methods block, for milliseconds, and may be called from any thread.  If the broker comes to an end by a failure of
    its own, the next method that is called raises BrokerFailed, and the end of the `with` does.
    """

    def __init__(
        self,
        configs: Mapping[str, Value] = NO_CONFIGS,
        *,
        directory: str | os.PathLike[str] | None = None,
        port: int = 0,
        **keywords: Value,
    ) -> None:
        """Raises ConfigError for what no broker of Kafka could be configured to."""
        super().__init__()
        self.faults = Faults()
        self._texts = texts(configs, keywords)
        self._given_directory = None if directory is None else Path(directory).absolute()
        self._is_durable = directory is not None
        self._wanted_port = port
        self._directory: Path | None = self._given_directory
        self._port: Port | None = None
        self._host: Host | None = None
        self._settings(Path("nowhere"), port)  # What is wrong with the configuration is said here.

    # Address and directory.

    @property
    def address(self) -> str:
        """The address as clients take it for bootstrap.servers; the same from the first start to the end."""
        return f"{HOST}:{self.port}"

    bootstrap_servers = address

    @property
    def port(self) -> int:
        if self._port is None:
            raise RuntimeError("a broker that was not started has no port yet")
        return self._port.number

    @property
    def directory(self) -> Path:
        """The folder with the data, in Kafka's own files: `directory / "orders-0"` is a partition."""
        if self._directory is None:
            raise RuntimeError("a broker that was not started has no directory yet")
        return self._directory

    @property
    def is_running(self) -> bool:
        return self._host is not None

    # Starting and stopping.

    def start(self) -> Self:
        """Starts serving; after `stop` or `kill` with the same data on the same port.

        Raises what keeps a broker from starting, each in words for a person: CannotListen, DirectoryInUse, ...
        """
        if self._host is not None:
            raise RuntimeError("the broker is running")
        if self._port is None:
            self._port = Port(self._wanted_port)
            self._close_at_exit()
        if self._directory is None:
            self._directory = Path(tempfile.mkdtemp(prefix="odradek-"))
        try:
            self._host = Host(
                self._settings(self._directory, self._port.number),
                durable=self._is_durable,
                prepare=self._prepare,
                loop=self._new_loop(),
                opens_tree=self._open_tree,
            )
        except BaseException:
            self.close()
            raise
        return self

    def stop(self) -> None:
        """Stops as after SIGTERM: parked requests are answered, the logs are closed.  Does nothing if it is stopped."""
        host, self._host = self._host, None
        if host is not None:
            host.stop()
            host.check()

    def kill(self) -> None:
        """Stops as kill -9 does: connections drop, nobody is answered, no log is closed; the next start recovers."""
        host, self._host = self._host, None
        if host is not None:
            host.abandon()
            host.check()

    def restart(self) -> None:
        self.stop()
        self.start()

    def close(self) -> None:
        """Stops, gives the port back, and removes the directory if it is a temporary one.  `with` does it."""
        try:
            self.stop()
        finally:
            self._give_back()

    def check(self) -> None:
        """Raises BrokerFailed if it has stopped by itself."""
        if self._host is not None:
            self._host.check()

    # Topics.

    def create_topic(self, name: str, partitions: int | None = None, configs: Mapping[str, Value] = NO_CONFIGS) -> None:
        """Creates a topic; `partitions` None is `num.partitions` of the broker, which is 1 unless configured.

        Raises Refused, with the error code that a client would get.
        """
        named = {key: text(value) for key, value in configs.items()}
        self._live().ask(partial(topics.create_topic, name=name, partitions=partitions, configs=named))

    def delete_topic(self, name: str) -> None:
        """Deletes a topic.  Raises Refused."""
        self._live().ask(partial(topics.delete_topic, name=name))

    def topics(self) -> list[str]:
        return self._live().ask(topics.names)

    def leaders(self, topic: str) -> list[int]:
        """Returns who leads each partition as this broker knows it, -1 if nobody does.

        A client that is given one broker's address alone asks any it has heard of, as soon as it has.  Raises KeyError
        if the broker knows no such topic.
        """
        return self._live().ask(partial(topics.leaders, name=topic))

    def _live(self) -> Host:
        if self._host is None:
            raise RuntimeError("the broker is not running")
        return self._host

    # Settings and cleaning up.

    def _settings(self, directory: Path, port: int) -> Settings:
        return settings({**self._texts, **self._places(directory, port)})

    def _places(self, directory: Path, port: int) -> dict[str, str]:
        return places(directory, port)

    def _prepare(self, running: Running) -> None:
        running.shell.dispatch = Injection(self.faults, running.shell)
        running.shell.wants_each = self.faults.is_armed

    def _new_loop(self) -> asyncio.AbstractEventLoop | None:
        return None  # One like any other.

    def _open_tree(self, path: Path, **options: Any) -> SqliteTree:
        """Begins a session of the tree that brokers share."""
        return SqliteTree(path, **options)

    def _give_back(self) -> None:
        self._was_closed()
        if self._port is not None:
            self._port.release()
            self._port = None
        if self._given_directory is None and self._directory is not None:
            shutil.rmtree(self._directory, ignore_errors=True)
            self._directory = None
