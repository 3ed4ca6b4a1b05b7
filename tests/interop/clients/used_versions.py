"""API versions used by a client, from the broker's own metrics."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from urllib.request import urlopen

from clients.fixtures import SETTINGS
from support.ports import free_port
from support.serving import Serving

COUNTED = re.compile(r'^kafka_network_request_metrics_requests_total\{request="(\w+)",version="(\d+)"\}', re.MULTILINE)


class Watched:
    """A broker that reports its requests."""

    def __init__(self, address: str, metrics: str) -> None:
        self.address = address
        self._metrics = metrics

    def used_versions(self) -> Mapping[str, list[int]]:
        """Return the used versions of each API, in ascending order."""
        with urlopen(f"http://{self._metrics}/metrics") as page:
            text = page.read().decode()
        found: dict[str, list[int]] = {}
        for api, version in COUNTED.findall(text):
            found.setdefault(api, []).append(int(version))
        return {api: sorted(versions) for api, versions in found.items()}


@contextmanager
def watched(folder: Path) -> Iterator[Watched]:
    metrics = f"127.0.0.1:{free_port()}"
    with Serving(folder, **SETTINGS, **{"metrics.listener": metrics}) as broker:
        yield Watched(broker.address, metrics)
        assert "Traceback" not in broker.errors()
