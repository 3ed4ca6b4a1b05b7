"""Counters of the traffic through a broker's sockets since it started.

The hot path only adds to attributes; the exporter (app/metrics/metrics.py) reads them on request.
"""

from __future__ import annotations

import time

from odradek.wire.request import Request

MICROSECONDS = 1_000_000
BUCKETS = 27  # Bucket n counts durations below 2ⁿ µs; the last but one ends at 33 s, the last has no end.


class Latencies:
    """Histogram of durations."""

    def __init__(self) -> None:
        self.count = 0
        self.seconds = 0.0
        self.buckets = [0] * BUCKETS

    def add(self, seconds: float) -> None:
        self.count += 1
        self.seconds += seconds
        bucket = int(seconds * MICROSECONDS).bit_length()
        self.buckets[bucket if bucket < BUCKETS else -1] += 1


class Traffic:
    """Counters of one broker.

    `requests` is indexed by the API key and version of the request, and measures from its arrival until its response is
    ready. `syncs` measures rounds of syncs, by the time that the disk took.
    """

    def __init__(self) -> None:
        self.bytes_in = 0
        self.bytes_out = 0
        self.connections_accepted = 0
        self.connections_refused = 0
        self.requests: dict[tuple[int, int], Latencies] = {}
        self.syncs = Latencies()

    def on_answered(self, request: Request, began: float) -> None:
        """Count a request that is answered now; `began` is its arrival time by time.monotonic."""
        key = request.api_key, request.api_version
        latencies = self.requests.get(key)
        if latencies is None:
            latencies = self.requests[key] = Latencies()
        latencies.add(time.monotonic() - began)
