"""Prometheus metrics at GET /metrics on a port and in threads of their own.

A scrape requests a snapshot from the loop, waits for it for a bounded time, and writes it out in its own thread. If the
loop hangs, the broker still answers: it reports since when the loop hangs, and the memory and time of the process.

Imported only if metrics.listener is set.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence

from odradek.app.config.listener_config import Endpoint
from odradek.app.metrics.metrics_http import HttpServer
from odradek.app.metrics.metrics_loop_lag import LoopLag
from odradek.app.metrics.metrics_snapshot import Collection, Snapshot
from odradek.base.extras import not_installed
from odradek.core.configs.definition import ConfigError
from odradek.net.clients.listen_failure import CannotListen, listen_error_text
from odradek.net.clients.listener import Listener
from odradek.net.shell.shell import Shell

try:
    from prometheus_client import CollectorRegistry, ProcessCollector, make_wsgi_app
    from prometheus_client.metrics_core import Metric as Family
    from prometheus_client.registry import Collector
except ImportError as missing:
    raise ConfigError(f"metrics.listener is set, but {not_installed(['prometheus_client'], 'metrics')}") from missing

from odradek.app.metrics import metrics_families as families

log = logging.getLogger(__name__)

LOOP_SECONDS_MAX = 3.0  # Prometheus itself waits 10 s.


class Metrics(Collector):
    """Metrics of one broker. The constructor raises CannotListen."""

    def __init__(self, address: Endpoint, shell: Shell, listeners: Sequence[Listener]) -> None:
        self._shell = shell
        self._listeners = listeners
        self._lag = LoopLag(shell.loop)
        registry = CollectorRegistry()
        registry.register(self)
        ProcessCollector(registry=registry)
        try:
            self._server = HttpServer(address.host, address.port, make_wsgi_app(registry))
        except OSError as error:
            raise CannotListen(listen_error_text(f"metrics.listener {address}", error, "metrics.listener=")) from error
        self.address = Endpoint(address.host, self._server.port)

    def start(self) -> None:
        """Start answering scrapes, at first reporting a busy loop: opening the logs may take a while."""
        self._lag.start()
        self._server.start()

    def announce(self) -> None:
        """Log the address of the metrics once they are available."""
        log.info("exporting metrics at http://%s/metrics", self.address)

    def stop(self) -> None:
        self._lag.stop()
        self._server.stop()

    def describe(self) -> list[Family]:
        return []

    def collect(self) -> Iterator[Family]:
        """Yield the families, in the thread of a scrape."""
        overdue_seconds = self._lag.overdue()
        snapshot = self._snapshot()
        if snapshot is not None:
            yield from families.of_snapshot(snapshot)
        yield from families.of_loop(snapshot is not None, max(overdue_seconds, self._lag.overdue()))

    def _snapshot(self) -> Snapshot | None:
        collection = Collection(self._shell, self._listeners, self._lag)
        try:
            self._shell.loop.call_soon_threadsafe(collection.start_collection)
            return collection.done.result(LOOP_SECONDS_MAX)
        except TimeoutError:
            collection.done.cancel()
        except RuntimeError:
            pass  # The loop has ended.
        except Exception:
            log.exception("metrics scrape failed")
        return None
