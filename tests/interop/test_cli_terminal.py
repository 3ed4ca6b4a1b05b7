"""The command line on a terminal: tables in a narrow window, and the prompt before internal topics are deleted."""

from __future__ import annotations

import os
import pty
import re
import subprocess
import sys
from collections.abc import Iterator
from fcntl import ioctl
from struct import pack
from termios import TIOCSWINSZ
from typing import NamedTuple
from uuid import uuid4

import pytest
from client_peers import odradek

from odradek.app.main import main
from odradek.testing import Broker
from support.terminals import all_shown, own
from support.waiting import SECONDS_MAX, until

COLUMNS = 60
ODRADEK = [sys.executable, "-m", "odradek"]


class Shown(NamedTuple):
    status: int
    text: str

    @property
    def lines(self) -> list[str]:
        return self.text.splitlines()


def on_terminal(*arguments: str, typed: str = "") -> Shown:
    """Run a command in a window of COLUMNS; return its exit status and the visible text."""
    outside, inside = pty.openpty()
    ioctl(inside, TIOCSWINSZ, pack("HHHH", 24, COLUMNS, 0, 0))
    os.write(outside, typed.encode())
    environment = {name: value for name, value in os.environ.items() if name not in ("COLUMNS", "LINES")}
    process = subprocess.Popen(
        [*ODRADEK, *arguments], stdin=inside, stdout=inside, stderr=inside, env=environment | {"TERM": "xterm"}
    )
    os.close(inside)
    seen = all_shown(outside)
    return Shown(process.wait(SECONDS_MAX), seen.decode().replace("\r\n", "\n"))


def is_whole(identifier: str, shown: Shown) -> bool:
    return any(re.search(rf"(^|\s){re.escape(identifier)}(:|\s|$)", line) for line in shown.lines)


def test_identifiers_stay_whole_in_a_narrow_window() -> None:
    address, unique = odradek(), uuid4().hex
    topic, group = f"{unique}-{'t' * 90}", f"{unique}-{'g' * 90}"
    assert main(["topic", "create", topic, "-b", address]) == 0
    member = subprocess.Popen(
        [*ODRADEK, "consume", topic, "--group", group, "--follow", "-b", address], stdout=subprocess.PIPE
    )
    try:
        until(lambda: "Stable" in on_terminal("group", "describe", group, "-b", address).text)
        described = on_terminal("group", "describe", group, "-b", address)
        assert is_whole(topic, described)
        (member_id,) = set(re.findall(r"odradek-cli-[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}\b", described.text))
        assert is_whole(member_id, described)
        assert is_whole(group, on_terminal("group", "list", "-b", address))
        listed = on_terminal("topic", "list", "-b", address)
        assert is_whole(topic, listed)
        assert not any(line.endswith(" ") for line in listed.lines), "blanks at the end would make empty lines"
        assert all(len(line) <= COLUMNS for line in listed.lines if line.startswith("─"))
    finally:
        member.terminate()
        member.communicate(timeout=SECONDS_MAX)
    planned = on_terminal("group", "reset-offsets", group, "--topic", topic, "--to-earliest", "-b", address)
    assert is_whole(topic, planned)
    assert is_whole(group, planned)


def test_sentences_are_folded_between_words() -> None:
    address = odradek()
    shown = on_terminal("doctor", address)
    assert shown.status == 0
    table, _, _ = shown.text.partition("\n\n")
    # The sentences begin in this column; only a word that is too long for it exceeds the window.
    begin = table.index("what a client sees")
    sentences = [line[begin:].strip() for line in table.splitlines()]
    assert all(begin + len(sentence) <= COLUMNS or " " not in sentence for sentence in sentences)
    assert is_whole(address, Shown(0, table.replace(",", " ")))
    assert "Java 4.3, librdkafka 2.16, kafka-python 3.0, aiokafka 0.14 can produce and consume" in " ".join(sentences)


@pytest.fixture
def own_topics() -> Iterator[str]:
    """Start a broker that has internal topics."""
    with Broker() as broker:
        address = broker.address
        assert main(["topic", "create", "t", "-b", address]) == 0
        assert main(["consume", "t", "--group", "g", "-b", address]) == 0
        yield address


def topics(address: str, capfd: pytest.CaptureFixture[str]) -> list[str]:
    capfd.readouterr()
    assert main(["topic", "list", "--internal", "-b", address]) == 0
    return [line.split()[0] for line in capfd.readouterr().out.splitlines()[2:]]


def test_internal_topics_are_deleted_only_after_a_confirmation(
    own_topics: str, capfd: pytest.CaptureFixture[str]
) -> None:
    delete = ["topic", "delete", "t", "__consumer_offsets", "-b", own_topics]
    assert main(delete) == 2
    holds = "odradek: __consumer_offsets contains the committed offsets of all groups"
    assert own(capfd.readouterr().err) == f"{holds}: pass --internal to delete it\n"
    piped = subprocess.run(
        [*ODRADEK, *delete, "--internal"], input=b"y\n", capture_output=True, timeout=SECONDS_MAX, check=False
    )
    assert (piped.returncode, piped.stdout) == (2, b"")
    assert piped.stderr.decode() == f"{holds}: pass --yes to delete it without a terminal\n"
    refused = on_terminal(*delete, "--internal", typed="n\n")
    assert refused.status == 1
    assert "Delete __consumer_offsets, and with it the committed offsets of all groups?" in refused.text
    assert "odradek: nothing was deleted" in refused.text
    assert topics(own_topics, capfd) == ["__consumer_offsets", "t"], "nothing went, not even what needs no word"
    assert on_terminal(*delete, "--internal", typed="y\n").text.endswith("deleted t\ndeleted __consumer_offsets\n")
    assert topics(own_topics, capfd) == []


def test_the_yes_option_skips_the_confirmation(own_topics: str, capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["topic", "delete", "__consumer_offsets", "--internal", "--yes", "-b", own_topics]) == 0
    assert topics(own_topics, capfd) == ["t"]


def test_produce_reports_a_topic_that_is_not_created(capfd: pytest.CaptureFixture[str]) -> None:
    with Broker(auto_create_topics_enable="false") as broker:
        assert main(["produce", "nix", "--file", os.devnull, "-b", broker.address]) == 1
    assert "topic nix: the topic or partition does not exist" in capfd.readouterr().err
