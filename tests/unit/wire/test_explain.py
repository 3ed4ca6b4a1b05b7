"""Command line tests of python -m odradek.wire."""

from __future__ import annotations

import subprocess
import sys

import pytest

from odradek.wire.__main__ import main
from odradek.wire.catalog import APIS
from odradek.wire.explain import explain
from odradek.wire.schema.schema import schema_of


def test_list_names_every_api(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["list"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[1] for line in lines[1 : len(APIS) + 1]] == [key.title for key in APIS]
    assert lines[2].split() == ["1", "Fetch", "0-18", "12"]


@pytest.mark.parametrize("name", ["Fetch", "fetch", "FETCH"])
def test_explain_shows_layout_and_code_of_request_and_response(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explain", name, "12"]) == 0
    out = capsys.readouterr().out
    for expected in (
        "FetchRequest version 12 of 0-18, API key 1, request header 2, flexible",
        "  topics                                  compact array of FetchTopic",
        "    0: cluster_id                         compact string, or null",
        "FetchResponse version 12 of 0-18, API key 1, response header 1, flexible",
        "      records                             compact records, or null",
    ):
        assert expected in out
    for verb in ("read", "write"):
        for side in ("Request", "Response"):
            assert f"def {verb}_Fetch{side}_v12(" in out


def test_explain_shows_a_single_message(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explain", "requestheader", "2"]) == 0
    out = capsys.readouterr().out
    assert out.startswith("RequestHeader version 2 of 0-2, flexible")
    assert "  client_id                               string, or null\n" in out
    assert main(["explain", "ProduceResponse", "0"]) == 0
    assert "ProduceRequest" not in capsys.readouterr().out


def test_every_message_and_version_can_be_explained() -> None:
    for key, (request, _) in APIS.items():
        for version in schema_of(request).versions:
            assert explain(key.title, version)


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["explain", "Fetsch", "1"], "unknown message 'Fetsch'"),
        (["explain", "Fetch", "19"], "Fetch has no version 19, only 0-18"),
        (["explain", "Fetch", "-1"], "Fetch has no version -1, only 0-18"),
        (["explain", "Fetch", "new"], "Fetch has no version new, only 0-18"),
        (["explain", "Fetch", "²"], "Fetch has no version ², only 0-18"),
        (["explain", "Fetch"], "use `list` or `explain NAME VERSION`"),
        ([], "use `list` or `explain NAME VERSION`"),
    ],
)
def test_invalid_arguments_give_one_sentence(
    arguments: list[str], sentence: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(arguments) == 2
    shown = capsys.readouterr()
    assert shown.out == ""
    assert shown.err.count("\n") == 1
    assert sentence in shown.err


@pytest.mark.waits
def test_module_runs_as_a_program() -> None:
    done = subprocess.run([sys.executable, "-m", "odradek.wire", "explain", "x", "1"], capture_output=True, check=False)
    assert (done.returncode, done.stdout, done.stderr.count(b"\n")) == (2, b"", 1)
