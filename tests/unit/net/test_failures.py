"""Injected bugs: a failed request costs that request, a broken invariant ends the process."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from odradek.base.errors import ErrorCode
from odradek.wire.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from odradek.wire.messages.metadata import MetadataRequest, MetadataResponse
from support.asking import create
from support.raw_client import Closed, RawClient

pytestmark = [pytest.mark.slow, pytest.mark.waits]

# A broker whose ListOffsets fails in the way of its first argument.
PROGRAM = """
import sys
from odradek.api.table import BY_KEY
from odradek.app.serve import server
from odradek.core.kernel.parked import ParkedRequest
from odradek.net.cluster.metadata_changes import MetadataChanges

class Condition:
    keys = ()

def at_once(call, body):
    raise FAILURE

def late(call, body):
    return ParkedRequest(Condition(), call.now.steady + 50, lambda: at_once(call, body))

def unencodable(call, body):
    answer = BY_KEY[2].refuse(call, body, 0)
    answer.topics[0].name = None
    return answer

FAILURE = AssertionError("broken") if "assertion" in sys.argv[1] else KeyError("a bug")
handlers = {"at-once": at_once, "late": late, "unencodable": unencodable}
def change(changes, change):
    raise FAILURE

if sys.argv[1].startswith("change"):
    MetadataChanges.change = change
else:
    BY_KEY[2].handle = handlers[sys.argv[1].removesuffix("-assertion")]
sys.exit(server.run(None, ["listeners=PLAINTEXT://127.0.0.1:0", "log.dirs=" + sys.argv[2]], False))
"""


@contextmanager
def faulty(directory: Path, failure: str) -> Iterator[tuple[subprocess.Popen[str], int]]:
    command = [sys.executable, "-c", PROGRAM, failure, str(directory / "data")]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert process.stdout is not None
    try:
        yield process, int(process.stdout.readline().rpartition(":")[2])
    finally:
        process.terminate()
        process.communicate(timeout=180)


def list_offset(client: RawClient) -> int:
    part = ListOffsetsPartition(partition_index=0, timestamp=-1)
    request = ListOffsetsRequest(replica_id=-1, topics=[ListOffsetsTopic(name="t", partitions=[part])])
    return client.ask(request, 7, ListOffsetsResponse).topics[0].partitions[0].error_code


@pytest.mark.parametrize("failure", ["at-once", "unencodable"])
def test_failed_request_gets_an_error_response(tmp_path: Path, failure: str) -> None:
    with faulty(tmp_path, failure) as (process, port), RawClient(port) as client:
        assert list_offset(client) == ErrorCode.UNKNOWN_SERVER_ERROR
        assert client.ask(MetadataRequest(topics=[]), 12, MetadataResponse).brokers
        process.terminate()
        assert process.wait(180) == 0


def test_failed_topic_change_gets_an_error_response(tmp_path: Path) -> None:
    with faulty(tmp_path, "change") as (process, port), RawClient(port) as client:
        assert create(client, "a", "b") == [ErrorCode.UNKNOWN_SERVER_ERROR] * 2
        assert client.ask(MetadataRequest(topics=[]), 12, MetadataResponse).brokers
        process.terminate()
        assert process.wait(180) == 0


def test_a_broken_invariant_in_a_change_ends_the_process(tmp_path: Path) -> None:
    with faulty(tmp_path, "change-assertion") as (process, port), RawClient(port) as client:
        with pytest.raises(Closed):
            create(client, "a")
        assert process.wait(180) == 1


def test_failed_parked_response_closes_its_connection(tmp_path: Path) -> None:
    with faulty(tmp_path, "late") as (process, port), RawClient(port) as client, RawClient(port) as other:
        with pytest.raises(Closed):
            list_offset(client)
        other.ping()
        process.terminate()
        assert process.wait(180) == 0


@pytest.mark.parametrize("failure", ["at-once-assertion", "late-assertion"])
def test_a_broken_invariant_ends_the_process_uncleanly(tmp_path: Path, failure: str) -> None:
    with faulty(tmp_path, failure) as (process, port), RawClient(port) as client:
        with pytest.raises(Closed):
            list_offset(client)
        assert process.wait(180) == 1
        assert process.stderr is not None
        assert "AssertionError: broken" in process.stderr.read()
        assert not (tmp_path / "data" / ".kafka_cleanshutdown").exists()
