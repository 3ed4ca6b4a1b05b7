"""The broker of a test: its lifecycle, address and topics; docs/TESTING.md contains examples."""

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
from odradek.app.serve.broker_startup import RunningBroker
from odradek.coordination.sqlite import SqliteTree
from odradek.testing import topic_queries as topics
from odradek.testing.configuration import NO_CONFIGS, Value, places, text, texts
from odradek.testing.faults import Faults
from odradek.testing.host import Host
from odradek.testing.injection import Injection
from odradek.testing.lifetime import Lifetime
from odradek.testing.reserved_port import HOST, Port


class Broker(Lifetime):
    """One broker in this process, on its own thread and event loop, for `with` or `async with`.

    The configuration is that of a Kafka broker: `Broker(num_partitions=3)` or `Broker({"num.partitions": 3})`. Without
    a `directory` the data is in a temporary one, which is removed at the end, and writes are not synced to disk. A
    given `directory` is kept and written as in production.

    Methods block for milliseconds and may be called from any thread. If the broker fails, the next method call raises
    BrokerFailed, and so does the end of the `with` block.
    """

    def __init__(
        self,
        configs: Mapping[str, Value] = NO_CONFIGS,
        *,
        directory: str | os.PathLike[str] | None = None,
        port: int = 0,
        **keywords: Value,
    ) -> None:
        """Create a broker without starting it; raise ConfigError for an invalid configuration."""
        super().__init__()
        self.faults = Faults()
        self._texts = texts(configs, keywords)
        self._given_directory = None if directory is None else Path(directory).absolute()
        self._is_durable = directory is not None
        self._requested_port = port
        self._directory: Path | None = self._given_directory
        self._port: Port | None = None
        self._host: Host | None = None
        self._settings(Path("nowhere"), port)  # Raises errors of the configuration.

    # Address and directory.

    @property
    def address(self) -> str:
        """Return the address for bootstrap.servers, the same from the first start to the end."""
        return f"{HOST}:{self.port}"

    bootstrap_servers = address

    @property
    def port(self) -> int:
        if self._port is None:
            raise RuntimeError("the broker has not been started: it has no port")
        return self._port.number

    @property
    def directory(self) -> Path:
        """Return the data directory in Kafka's own layout: `directory / "orders-0"` is a partition."""
        if self._directory is None:
            raise RuntimeError("the broker has not been started: it has no directory")
        return self._directory

    @property
    def is_running(self) -> bool:
        return self._host is not None

    # Starting and stopping.

    def start(self) -> Self:
        """Start the broker; after `stop` or `kill` it has the same data and port.

        Raise the errors that prevent a start, with messages for users: CannotListen, DirectoryInUse, ...
        """
        if self._host is not None:
            raise RuntimeError("the broker is already running")
        if self._port is None:
            self._port = Port(self._requested_port)
            self._close_at_exit()
        if self._directory is None:
            self._directory = Path(tempfile.mkdtemp(prefix="odradek-"))
        try:
            self._host = Host(
                self._settings(self._directory, self._port.number),
                durable=self._is_durable,
                prepare=self._prepare,
                loop=self._new_loop(),
                open_tree=self._open_tree,
            )
        except BaseException:
            self.close()
            raise
        return self

    def stop(self) -> None:
        """Stop as after SIGTERM: answer parked requests and close the logs; do nothing if stopped."""
        host, self._host = self._host, None
        if host is not None:
            host.stop()
            host.check()

    def kill(self) -> None:
        """Stop as after kill -9: drop connections without answers or closed logs; the next start recovers."""
        host, self._host = self._host, None
        if host is not None:
            host.abandon()
            host.check()

    def restart(self) -> None:
        self.stop()
        self.start()

    def close(self) -> None:
        """Stop, release the port, and remove a temporary directory; `with` calls this."""
        try:
            self.stop()
        finally:
            self._release_resources()

    def check(self) -> None:
        """Raise BrokerFailed if the broker has failed."""
        if self._host is not None:
            self._host.check()

    # Topics.

    def create_topic(self, name: str, partitions: int | None = None, configs: Mapping[str, Value] = NO_CONFIGS) -> None:
        """Create a topic; `partitions` defaults to the broker's `num.partitions`, 1 unless configured.

        Raise Refused with the error code that a client would get.
        """
        config_texts = {key: text(value) for key, value in configs.items()}
        self._running_host().run_query(
            partial(topics.create_topic, name=name, partitions=partitions, configs=config_texts)
        )

    def delete_topic(self, name: str) -> None:
        """Delete a topic, or raise Refused."""
        self._running_host().run_query(partial(topics.delete_topic, name=name))

    def topics(self) -> list[str]:
        return self._running_host().run_query(topics.names)

    def leaders(self, topic: str) -> list[int]:
        """Return the leader of each partition known to this broker, -1 if there is none.

        A client with the address of only one broker uses any broker it learns of. Raise KeyError if the broker does not
        know the topic.
        """
        return self._running_host().run_query(partial(topics.leaders, name=topic))

    def _running_host(self) -> Host:
        if self._host is None:
            raise RuntimeError("the broker is not running")
        return self._host

    # Settings and cleaning up.

    def _settings(self, directory: Path, port: int) -> Settings:
        return settings({**self._texts, **self._places(directory, port)})

    def _places(self, directory: Path, port: int) -> dict[str, str]:
        return places(directory, port)

    def _prepare(self, running: RunningBroker) -> None:
        running.shell.dispatch = Injection(self.faults, running.shell)
        running.shell.must_dispatch_each = self.faults.is_armed

    def _new_loop(self) -> asyncio.AbstractEventLoop | None:
        return None  # The default event loop.

    def _open_tree(self, path: Path, **options: Any) -> SqliteTree:
        """Open a session of the metadata tree that brokers share."""
        return SqliteTree(path, **options)

    def _release_resources(self) -> None:
        self._was_closed()
        if self._port is not None:
            self._port.release()
            self._port = None
        if self._given_directory is None and self._directory is not None:
            shutil.rmtree(self._directory, ignore_errors=True)
            self._directory = None
