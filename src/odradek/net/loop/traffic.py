"""What went through a broker's sockets since it started, as plain counters.

The hot path adds to attributes and nothing else; whoever shows them (app/metrics/metrics) reads them when asked.
"""

from __future__ import annotations

import time

from odradek.wire.request import Request

MICROSECONDS = 1_000_000
BUCKETS = 27  # Bucket n counts what took less than 2ⁿ µs; the last but one ends at 33 s, the last has no end.


class Latencies:
    """A histogram of how long something took."""

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
    """The counters of one broker.

    `requests` is by (API key, version), as the client asked: from a request's arrival until its answer was ready.
    `syncs` are the rounds of syncs, as long as the disk took.
    """

    def __init__(self) -> None:
        self.bytes_in = 0
        self.bytes_out = 0
        self.connections_accepted = 0
        self.connections_refused = 0
        self.requests: dict[tuple[int, int], Latencies] = {}
        self.syncs = Latencies()

    def answered(self, request: Request, began: float) -> None:
        """Counts a request that is answered now; `began` is when it came, by time.monotonic."""
        key = request.api_key, request.api_version
        latencies = self.requests.get(key)
        if latencies is None:
            latencies = self.requests[key] = Latencies()
        latencies.add(time.monotonic() - began)
