"""Two thousand idle connections and two hundred slow ones do not hold up a fast one."""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from odradek.base.errors import ErrorCode
from odradek.wire.client_codec import decode_response
from odradek.wire.messages.api_versions import ApiVersionsRequest
from odradek.wire.messages.fetch import FetchResponse
from odradek.wire.messages.produce import ProduceResponse
from support.asking import FETCH, LEADER, MIB, PRODUCE, created, fetch, fetch_all, produce_request, produced
from support.crowd import Crowd, need_files
from support.raw_client import Closed, RawClient, frame
from support.serving import Serving, serving
from support.slow_crowd import SlowCrowd

IDLE = 2_000
SLOW = 100  # Of each kind.
ROUNDS = 500
SECONDS_MAX = 300
TESTS = Path(__file__).parent.parent


@contextmanager
def idle_connections(broker: Serving) -> Iterator[None]:
    """Open connections that sent one request each, as clients do, and nothing since."""
    need_files(IDLE + 500)
    with Crowd(broker.port, IDLE, frame(ApiVersionsRequest(), 0)) as crowd:
        crowd.work_until(lambda: crowd.answered == IDLE, SECONDS_MAX)
        yield
        assert not crowd.closed


def test_idle_connections_cost_no_processor_time(tmp_path: Path) -> None:
    with serving(tmp_path) as broker, idle_connections(broker):
        assert broker.is_idle_for(3)


def test_a_fast_connection_among_idle_and_slow_ones(tmp_path: Path) -> None:
    """The fast connection gets hundreds of responses during each slow one; the slow ones complete in the end."""
    with serving(tmp_path) as broker:
        with RawClient(broker.port) as client:
            created(client, "t", "fast")
            for _ in range(8):
                produced(client, "t", bytes(MIB - 100), acks=LEADER)
        with idle_connections(broker), SlowCrowd(broker.port, "t", SLOW) as slow, RawClient(broker.port) as fast:
            for number in range(ROUNDS):
                slow.step()
                assert produced(fast, "fast", b"%d" % number) == number
                if number % 10 == 0:
                    assert fetch(fast, "fast", number) == (ErrorCode.NONE, [(number, b"%d" % number)])
            assert not slow.is_any_writer_answered()
            slow.finish_writing()
            for writer in slow.writers:
                _, kept = decode_response(ProduceResponse, PRODUCE, writer.read_frame())
                assert kept.responses[0].partition_responses[0].error_code == ErrorCode.NONE
            for number in range(5):
                _, answer = decode_response(FetchResponse, FETCH, slow.read_rest(number))
                (part,) = answer.responses[0].partitions
                assert part.records is not None and len(part.records) > 8 * (MIB - 100)
            assert len(fetch_all(fast, "fast")) == ROUNDS
        assert "Traceback" not in broker.errors()


def test_a_connection_with_half_a_request_counts_as_idle(tmp_path: Path) -> None:
    with serving(tmp_path, connections_max_idle_ms="500") as broker, RawClient(broker.port) as client:
        client.ping()
        client.send(frame(produce_request("t", bytes(1000)), PRODUCE)[:500])
        with pytest.raises(Closed):
            client.read_frame()


def test_a_connection_that_dribbles_a_request_is_not_idle(tmp_path: Path) -> None:
    with serving(tmp_path, connections_max_idle_ms="3000") as broker, RawClient(broker.port) as client:
        request = frame(ApiVersionsRequest(), 0)
        for at in range(len(request)):
            client.send(request[at : at + 1])
            time.sleep(0.2)
        assert client.read_frame()


@pytest.mark.parametrize("size", [(1 << 20) + 1, (1 << 31) - 1, -1, 0])
def test_a_request_that_is_too_large_is_not_read(tmp_path: Path, size: int) -> None:
    with serving(tmp_path, socket_request_max_bytes=str(1 << 20)) as broker, RawClient(broker.port) as client:
        client.send(size.to_bytes(4, "big", signed=True) + bytes(100))
        with pytest.raises(Closed):
            client.read_frame()
        with RawClient(broker.port) as other:
            other.ping()


@pytest.mark.soak
def test_measure_the_latency_of_a_fast_connection_in_a_crowd(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Print the table of docs/BAD_DAYS.md; assert nothing about time."""
    with serving(tmp_path) as broker:
        with RawClient(broker.port) as client:
            created(client, "t", "fast")
            for _ in range(8):
                produced(client, "t", bytes(MIB - 100), acks=LEADER)
        rows = [("alone", latencies(broker))]
        with idle_connections(broker):
            rows.append(("2,000 idle", latencies(broker)))
            with slow_process(broker):
                rows.append(("2,000 idle, 200 slow", latencies(broker)))
        with capsys.disabled():
            print("\n| connections beside it | p50 | p99 | p99.9 |\n|---|---|---|---|")
            for name, found in rows:
                cuts = statistics.quantiles(found, n=1000)
                print(f"| {name} | " + " | ".join(f"{cuts[at] * 1000:.2f} ms" for at in (499, 989, 998)) + " |")


def latencies(broker: Serving) -> list[float]:
    """Return the seconds that each of many small Produce requests took, one at a time, with acks=1."""
    found = []
    with RawClient(broker.port) as client:
        for _ in range(20_000):
            began = time.perf_counter()
            produced(client, "fast", bytes(100), acks=LEADER)
            found.append(time.perf_counter() - began)
    return found[1000:]


@contextmanager
def slow_process(broker: Serving) -> Iterator[None]:
    command = [sys.executable, "-m", "support.slow_crowd", str(broker.port), "t", str(SLOW)]
    environment = {**os.environ, "PYTHONPATH": f"{TESTS.parent / 'src'}:{TESTS}"}
    with subprocess.Popen(command, stdout=subprocess.PIPE, env=environment) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == b"ready\n"
            yield
            assert process.poll() is None
        finally:
            process.kill()
