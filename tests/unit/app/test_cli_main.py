"""Output and exit status of the command line without a broker.

With a broker, see tests/interop/test_client_cli.py.
"""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from odradek import __version__
from odradek.app.commands.command_tree import VERBS
from odradek.app.commands.serve_command import Serve, parse
from odradek.app.main import main
from odradek.app.terminal.compiled import version_line
from odradek.app.terminal.output import plural, print_table, size_text, time_text
from support.waiting import until

pytestmark = [pytest.mark.slow, pytest.mark.waits]


def run(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    status = main(arguments)
    captured = capsys.readouterr()
    return status, captured.out, captured.err


def unused_address() -> str:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return f"127.0.0.1:{listener.getsockname()[1]}"


@pytest.mark.parametrize("arguments", [["--version"], ["topic", "--version"]])
def test_version_option_prints_the_version(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    status, out, err = run(capsys, *arguments)
    if arguments[0] == "--version":
        assert (status, out) == (0, f"{version_line()}\n")
        assert out.startswith(f"odradek {__version__} (")
    else:
        assert (status, err.count("\n")) == (2, 1)


@pytest.mark.parametrize(
    "verb",
    [
        [],
        *([verb] for verb in VERBS),
        ["topic", "create"],
        ["log", "dump"],
        ["group", "reset-offsets"],
        ["txn", "abort"],
    ],
)
def test_every_command_has_help(verb: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    status, out, err = run(capsys, *verb, "--help")
    assert status == 0
    assert "Usage: odradek" in out
    assert not err
    if not verb:
        assert all(each in out for each in VERBS)


@pytest.mark.parametrize("arguments", [[], ["topic"], ["log"], ["group"], ["txn"]])
def test_no_verb_shows_help(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    status, out, err = run(capsys, *arguments)
    assert status in {0, 2}  # 0 if typer, before 0.26, uses a click before 8.2.
    assert "Usage: odradek" in out + err


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["tpic"], "No such command 'tpic'"),
        (["topic", "crate"], "No such command 'crate'"),
        (["topic", "create"], "Missing argument 'TOPIC'"),
        (["topic", "create", "t", "--partitions", "0"], "Invalid value for '--partitions'"),
        (["topic", "create", "t", "--config", "x"], "use --config name=value"),
        (["topic", "list", "--bootstrap-server", "somewhere"], "use host:port"),
        (["consume", "t", "--format", "xml"], "Invalid value for '--format'"),
        (["consume", "t", "--no-such-option"], "No such option"),
        (["produce", "t", "--json", "--key-separator", ":"], "omit --key-separator"),
        (["produce", "t", "--key-separator", ""], "must not be empty"),
        (["consume", "t", "--from", "soon", "--group", "g"], "use beginning, end, an offset"),
        (["consume", "t", "--group", ""], "--group must not be empty"),
        (["consume", "t", "--group", "g", "--partition", "0"], "omit --partition or --group"),
        (["consume", "t", "--group-instance-id", "i"], "requires --group"),
        (["group", "list", "--state", "fine"], "use one of Empty"),
        (["group", "list", "--type", "share"], "use one of classic, consumer"),
        (["group", "reset-offsets", "g", "--topic", "t"], "choose one of --to-earliest"),
        (["group", "reset-offsets", "g", "--to-latest"], "either --topic TOPIC[:N,...] or --all-topics"),
        (["group", "reset-offsets", "g", "--topic", "t", "--all-topics", "--to-latest"], "either --topic"),
        (
            ["group", "reset-offsets", "g", "--topic", "t", "--to-latest", "--to-earliest"],
            "choose one of --to-earliest",
        ),
        (
            ["group", "reset-offsets", "g", "--topic", "t", "--to-latest", "--execute", "--dry-run"],
            "exclude each other",
        ),
        (["group", "reset-offsets", "g", "--topic", "t", "--to-latest", "--export", "--json"], "omit one of them"),
        (["group", "reset-offsets", "g", "--topic", "t", "--from-file", "x"], "--from-file names the partitions"),
        (["group", "reset-offsets", "g", "--topic", "t", "--to-datetime", "soon"], "use a time like"),
        (["group", "reset-offsets", "g", "--topic", "t", "--by-duration", "long"], "use 90s, 10m, 2h"),
        (["group", "delete-offsets", "g"], "Missing option '--topic'"),
        (["txn", "list", "--longer-than", "long"], "use 90s, 10m, 2h"),
        (["txn", "list", "--longer-than", "99999999999999999999d"], "use 90s, 10m, 2h"),
        (["txn", "list", "--producer-id", "9223372036854775808"], "Invalid value for '--producer-id'"),
        (["txn", "list", "--state", "fine"], "use one of Empty"),
        (["txn", "abort"], "name a transactional id"),
        (["txn", "abort", "--topic", "t"], "name a transactional id"),
        (["txn", "abort", "x", "--topic", "t"], "not both"),
        (["serve", "--override"], "requires an argument"),
        (["serve", "--port", "9092"], "No such option"),
        (["load", "--lake", "x"], "either --topics or --pattern"),
        (["produce", "bad name"], "has characters other than ASCII letters, digits, '.', '_' and '-'\n"),
        (["produce", "."], "a topic name may not be '.' or '..'"),
        (["produce", ""], "a topic name may not be empty"),
        (["produce", "t" * 250], "a topic name has at most 249 characters, this one 250"),
        (
            ["consume", "many.*"],
            "has characters other than ASCII letters, digits, '.', '_' and '-'; use a name, not a",
        ),
        (["consume", "t", ".."], "a topic name may not be '.' or '..'"),
        (["produce", "t", "--codec", "zip"], "Invalid value for '--codec' / '-z': 'zip' is not one of 'none'"),
        (["topic", "create", "t", "--partitions", "99999999999"], "2147483647"),
        (["topic", "create", "t", "--replication-factor", "99999"], "32767"),
        (["group", "describe", ""], "it must not be empty"),
        (["group", "delete", "g", ""], "Invalid value for 'GROUP': it must not be empty"),
        (["group", "delete-offsets", "", "--topic", "t"], "Invalid value for 'GROUP': it must not be empty"),
        (["group", "reset-offsets", "", "--topic", "t", "--to-latest"], "'GROUP': it must not be empty"),
        (["txn", "describe", ""], "Invalid value for 'TRANSACTIONAL_ID': it must not be empty"),
        (["txn", "abort", ""], "it must not be empty"),
        (["topic", "create", "a/b"], "has characters other than ASCII letters"),
        (["topic", "describe", "a/b"], "has characters other than ASCII letters"),
        (["topic", "grow", "a/b", "-p", "2"], "has characters other than ASCII letters"),
        (["topic", "delete", "t", "a/b"], "has characters other than ASCII letters"),
    ],
)
def test_invalid_arguments_give_one_sentence_and_status_2(
    arguments: list[str], words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    if arguments[0] == "load":
        pytest.importorskip("pyspark")
    status, out, err = run(capsys, *arguments)
    assert status == 2, err
    assert not out
    assert words in err
    assert err.startswith("odradek")
    assert err.count("\n") == 1


@pytest.mark.parametrize(
    "arguments",
    [
        ["topic", "list"],
        ["topic", "create", "t"],
        ["topic", "describe"],
        ["produce", "t"],
        ["consume", "t"],
        ["consume", "t", "--group", "g"],
        ["group", "list"],
        ["group", "describe"],
        ["group", "delete", "g"],
        ["group", "reset-offsets", "g", "--topic", "t", "--to-latest"],
        ["txn", "list"],
        ["txn", "abort", "x"],
    ],
)
def test_unreachable_broker_gives_one_sentence_and_status_1(
    arguments: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    address = unused_address()
    status, out, err = run(capsys, *arguments, "-b", address)
    assert status == 1
    assert not out
    assert f"cannot connect to {address}: connection refused" in err
    assert err.count("\n") == 1


def test_missing_file_is_refused(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    status, _, err = run(capsys, "log", "dump", str(tmp_path / "nix"))
    assert (status, err) == (1, f"odradek: {tmp_path / 'nix'} does not exist\n")


@pytest.mark.parametrize(
    ("key", "words"),
    [
        ("ssl.keystor.location", "ssl.keystor.location; did you mean ssl.keystore.location?"),
        ("retry.backof.ms", "retry.backof.ms: this client does not use it; did you mean retry.backoff.ms?"),
        ("reconnect.backoff.ms", "reconnect.backoff.ms: this client does not use it\n"),  # A valid Kafka key.
    ],
)
def test_misspelt_client_key_is_refused_with_a_suggestion(key: str, words: str, tmp_path: Path) -> None:
    (tmp_path / "client.properties").write_text(f"{key}=5\n")
    options = ["--command-config", str(tmp_path / "client.properties"), "-b", unused_address()]
    ended = subprocess.run(
        [sys.executable, "-m", "odradek", "topic", "list", *options],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert f"option {words}" in ended.stderr


def test_folder_without_logs_is_refused(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    status, _, err = run(capsys, "log", "verify", str(tmp_path))
    assert (status, err) == (
        1,
        f"odradek: {tmp_path} contains no log: name a data directory, or a partition directory in it\n",
    )


def test_serve_arguments_are_parsed() -> None:
    assert parse([]) == Serve(None, [], False)
    assert parse(["a.properties", "--override", "x=1", "--override=y=a=b", "--insecure"]) == Serve(
        Path("a.properties"), ["x=1", "y=a=b"], True
    )
    for other in (["--help"], ["a", "b"], ["--override"], ["--overrid=x=1"], ["-x"]):
        assert parse(other) is None


def test_serve_refuses_an_unknown_key(tmp_path: Path) -> None:
    finished = subprocess.run(
        [sys.executable, "-m", "odradek", "serve", "--override", "num.partitons=3"],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        timeout=240,
        check=False,
    )
    assert finished.returncode == 2, finished.stderr
    assert not finished.stdout
    assert "num.partitons" in finished.stderr
    assert finished.stderr.count("\n") == 1
    assert not list(tmp_path.iterdir()), "nothing was touched"


def loaded_by(code: str) -> set[str]:
    """Return the modules loaded in a fresh interpreter by this code."""
    script = f"import sys\n{code}\nprint('\\n'.join(sys.modules))"
    finished = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=240, check=True)
    return set(finished.stdout.split())


HEAVY = {"typer", "click", "rich", "pyarrow", "pyspark", "cramjam", "prometheus_client", "inspect", "asyncio", "json"}


def test_version_and_serve_load_only_needed_modules() -> None:
    version = loaded_by("from odradek.app.main import main; main(['--version'])")
    assert not version & (HEAVY | {"pathlib", "typing", "re"})
    serve = loaded_by("from odradek.app.commands import serve_command; serve_command.parse(['--override', 'x=1'])")
    assert not serve & HEAVY


def test_broker_does_not_load_the_other_commands() -> None:
    loaded = loaded_by("import odradek.app.serve.server")
    unwanted = {"typer", "click", "rich", "pyarrow", "pandas", "numpy", "pyspark", "prometheus_client"}
    assert not loaded & unwanted
    assert not any(name.startswith(("odradek.client", "odradek.spark")) for name in loaded)


def test_commands_require_a_standard_output_but_serve_does_not(tmp_path: Path) -> None:
    """A closed descriptor must not become a socket; other commands would write to nowhere."""
    closed = "import os; os.close(1); os.execv(sys.executable, [sys.executable, '-m', 'odradek', *sys.argv[1:]])"
    program = [sys.executable, "-c", f"import sys; {closed}"]
    listing = subprocess.run([*program, "topic", "list"], check=False, capture_output=True, text=True, timeout=60)
    assert (listing.returncode, listing.stderr) == (1, "odradek: standard output is closed\n")
    address = unused_address()
    place = ["--override", f"log.dirs={tmp_path}", "--override", f"listeners=PLAINTEXT://{address}"]
    with subprocess.Popen([*program, "serve", *place], stderr=subprocess.PIPE, text=True) as broker:
        until(lambda: main(["topic", "list", "-b", address]) == 0)
        broker.terminate()
        _, errors = broker.communicate(timeout=60)
    assert broker.returncode == 0, errors


def test_python_dash_m_runs_the_same_program() -> None:
    finished = subprocess.run(
        [sys.executable, "-m", "odradek", "--version"], capture_output=True, text=True, timeout=240, check=True
    )
    assert finished.stdout == f"{version_line()}\n"


def test_closed_output_pipe_is_not_an_error(tmp_path: Path) -> None:
    """As in `odradek ... | head`: no traceback, and the shell's exit status for a closed pipe."""
    reading, writing = os.pipe()
    process = subprocess.Popen(
        [sys.executable, "-m", "odradek", "--help"], stdout=writing, stderr=subprocess.PIPE, text=True
    )
    os.close(writing)
    os.close(reading)
    _, err = process.communicate(timeout=240)
    assert not err
    assert process.returncode in (0, 1, 141)


@pytest.mark.parametrize(
    ("size", "expected"),
    [(0, "0 B"), (1023, "1023 B"), (1536, "1.5 KiB"), (5 << 30, "5.0 GiB"), (1 << 50, "1024.0 TiB")],
)
def test_size_text(size: int, expected: str) -> None:
    assert size_text(size) == expected


@pytest.mark.parametrize(
    ("timestamp", "expected"),
    [(-1, "-"), (0, "1970-01-01T00:00:00.000Z"), (1795248886782, "2026-11-21T08:14:46.782Z"), (1 << 62, str(1 << 62))],
)
def test_time_text(timestamp: int, expected: str) -> None:
    assert time_text(timestamp) == expected


def test_table_escapes_control_characters_in_names(capsys: pytest.CaptureFixture[str]) -> None:
    print_table(["group", "lag>", "says~"], [("日本", 7, "x"), ("a\nb\x1b[2J", None, "y")])
    assert capsys.readouterr().out.splitlines() == [
        "group         lag   says",
        "────────────────────────",
        "日本            7   x",
        "a\\nb\\x1b[2J     -   y",
    ]


def test_plural_text() -> None:
    assert plural(1, "record") == "1 record"
    assert plural(1234, "record") == "1,234 records"
    assert plural(2, "batch", "batches") == "2 batches"
