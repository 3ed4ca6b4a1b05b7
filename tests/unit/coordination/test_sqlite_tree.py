"""The embedded tree under damaged files, crashes, hung processes and a full journal."""

from __future__ import annotations

import os
import signal
import sqlite3
import subprocess
import sys
import textwrap
import threading
import time
from pathlib import Path
from queue import SimpleQueue
from typing import TYPE_CHECKING

import pytest

import odradek
from odradek.coordination import sqlite, sqlite_file
from odradek.coordination import tree_layout as layout
from odradek.coordination.sqlite import SqliteTree
from odradek.coordination.sqlite_file import APPLICATION_ID
from odradek.coordination.tree import EventKind, NodeExists, SessionExpired, SessionState, Unavailable, WatchEvent
from unit.coordination.trees import increment

if TYPE_CHECKING:
    from unit.coordination.conftest import Seen

pytestmark = [pytest.mark.slow, pytest.mark.waits]

SOURCE = Path(odradek.__file__).parents[1]


def python(code: str, *arguments: object) -> subprocess.Popen[str]:
    line = [sys.executable, "-c", textwrap.dedent(code), *map(str, arguments)]
    environment = {**os.environ, "PYTHONPATH": str(SOURCE)}
    return subprocess.Popen(line, stdout=subprocess.PIPE, text=True, env=environment)


def read_line(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline().strip()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "metadata" / "tree.sqlite"


# Opening.


def test_startup_paths_are_created_in_one_change(path: Path) -> None:
    with SqliteTree(path) as tree:
        layout.ensure_startup_paths(tree)
        made = {tree.get(name)[1].czxid for name in layout.STARTUP_PATHS}
        assert made == {1}
        layout.ensure_startup_paths(tree)
        tree.create("/next")
        assert tree.get("/next")[1].czxid == 2


def test_write_ahead_log_of_a_killed_process_is_checkpointed(path: Path) -> None:
    """If the last sync of the process failed, only the page cache has the content of the write-ahead log."""
    with python(
        """
        import os, sys
        from pathlib import Path
        from odradek.coordination.sqlite import SqliteTree
        SqliteTree(Path(sys.argv[1])).create("/marker")
        os._exit(0)
        """,
        path,
    ) as process:
        assert process.wait(60) == 0
    assert b"/marker" not in path.read_bytes()
    with SqliteTree(path) as tree:
        assert b"/marker" in path.read_bytes()
        assert tree.exists("/marker") is not None


def test_persistent_nodes_survive_reopening(path: Path) -> None:
    with SqliteTree(path) as tree:
        tree.create("/a", b"\x00\xff")
        tree.create("/a/e", ephemeral=True)
        before = tree.get("/a")
    with SqliteTree(path) as tree:
        data, stat = tree.get("/a")
        assert data == b"\x00\xff"
        assert stat._replace(pzxid=0, cversion=0, num_children=0) == before[1]._replace(
            pzxid=0, cversion=0, num_children=0
        )
        assert tree.children("/a") == []


def test_clean_close_leaves_only_the_database_file(path: Path) -> None:
    with SqliteTree(path), SqliteTree(path):
        pass
    assert [file.name for file in path.parent.iterdir()] == ["tree.sqlite"]


def test_several_processes_may_create_the_file_concurrently(path: Path) -> None:
    code = """
        import sys
        from pathlib import Path
        from odradek.coordination import claims
        from odradek.coordination import tree_layout as layout
        from odradek.coordination.sqlite import SqliteTree
        sys.stdin.readline()
        tree = SqliteTree(Path(sys.argv[1]))
        layout.ensure_startup_paths(tree)
        print(claims.broker_id(tree, 1000), claims.cluster_id(tree, sys.argv[2]), flush=True)
        tree.close()
    """
    processes = []
    for i in range(4):
        line = [sys.executable, "-c", textwrap.dedent(code), str(path), f"cluster-{i}"]
        environment = {**os.environ, "PYTHONPATH": str(SOURCE)}
        processes.append(
            subprocess.Popen(line, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment)
        )
    time.sleep(0.5)  # Until all have finished their imports; otherwise the race is only less close.
    outputs = [process.communicate("go\n", timeout=30)[0].split() for process in processes]
    assert sorted(int(broker) for broker, _ in outputs) == [1001, 1002, 1003, 1004]
    assert len({cluster for _, cluster in outputs}) == 1


def not_a_database(path: Path) -> None:
    path.write_text("log.dirs=/data\n" * 100)


def another_database(path: Path) -> None:
    with sqlite3.connect(path) as database:
        database.execute("CREATE TABLE t (a)")
    database.close()


def an_empty_file(path: Path) -> None:
    path.touch()


def a_cut_file(path: Path) -> None:
    SqliteTree(path).close()
    path.write_bytes(path.read_bytes()[:5000])


def a_newer_release(path: Path) -> None:
    SqliteTree(path).close()
    with sqlite3.connect(path) as database:
        database.execute("PRAGMA user_version = 99")
    database.close()


def a_folder(path: Path) -> None:
    path.mkdir()


@pytest.mark.parametrize(
    ("spoil", "sentence"),
    [
        (not_a_database, "is not a metadata file of Odradek: move it away"),
        (another_database, "is not a metadata file of Odradek: move it away"),
        (an_empty_file, "is not a metadata file of Odradek: move it away"),
        (a_cut_file, "is damaged"),
        (a_newer_release, "has version 99, but this release supports only 1"),
        (a_folder, ": unable to open database file"),
    ],
)
def test_invalid_file_is_refused(tmp_path: Path, spoil: object, sentence: str) -> None:
    assert callable(spoil)
    path = tmp_path / "tree.sqlite"
    spoil(path)
    with pytest.raises(Unavailable) as error:
        SqliteTree(path)
    assert sentence in str(error.value)
    assert str(path) in str(error.value)
    assert "\n" not in str(error.value)


def test_failure_to_create_the_directory_is_reported(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(Unavailable, match="Failed to create the metadata file "):
        SqliteTree(tmp_path / "file" / "tree.sqlite")


def test_damage_found_by_a_later_read_is_reported(path: Path) -> None:
    with SqliteTree(path) as tree:
        for i in range(2000):
            tree.multi([])
            tree.create(f"/{i:04d}", bytes(1000)) if i % 100 == 0 else None
    data = bytearray(path.read_bytes())
    data[4096 * 2 :] = os.urandom(len(data) - 4096 * 2)  # The header and the schema stay whole.
    path.write_bytes(data)
    with pytest.raises(Unavailable, match="is damaged"), SqliteTree(path) as tree:
        for name in tree.children("/"):
            tree.get(f"/{name}")


def test_write_to_a_locked_tree_times_out(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sqlite_file, "BUSY_TIMEOUT_S", 0.1)
    with SqliteTree(path) as tree:
        other = sqlite3.connect(path, isolation_level=None)
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(Unavailable, match="has been locked by another process"):
            tree.create("/a")
        assert tree.exists("/a") is None  # Readers do not wait.
        other.execute("ROLLBACK")
        other.close()
        tree.create("/a")


def test_database_has_an_application_id_and_is_fully_synced(path: Path) -> None:
    with SqliteTree(path) as tree:
        assert tree._database.execute("PRAGMA application_id").fetchone() == (APPLICATION_ID,)
        assert tree._database.execute("PRAGMA journal_mode").fetchone() == ("wal",)
        assert tree._database.execute("PRAGMA synchronous").fetchone() == (2,)  # FULL: a commit waits for the disk.


# Crashes.


def test_acknowledged_changes_survive_a_kill(path: Path) -> None:
    code = """
        import sys
        from pathlib import Path
        from odradek.coordination.sqlite import SqliteTree
        from odradek.coordination.tree import Create, SetData
        tree = SqliteTree(Path(sys.argv[1]))
        if tree.exists("/n") is None:
            tree.create("/n", b"0")
        n = int(tree.get("/n")[0])
        while True:
            n += 1
            tree.multi([SetData("/n", b"%d" % n), Create(f"/n/{n}", b"x" * 100)])
            print(n, flush=True)
    """
    acknowledged = 0
    for delay in (0.05, 0.1, 0.02, 0.15):
        process = python(code, path)
        first = int(read_line(process))
        assert first == acknowledged + 1 or first == acknowledged + 2
        time.sleep(delay)
        process.kill()
        output, _ = process.communicate()
        acknowledged = max([first, *map(int, output.split()[:-1] if not output.endswith("\n") else output.split())])
        with SqliteTree(path) as tree:
            found = int(tree.get("/n")[0])
            assert acknowledged <= found <= acknowledged + 1
            assert sorted(map(int, tree.children("/n"))) == list(range(1, found + 1))
            acknowledged = found


HOLD = """
    import sys, threading
    from pathlib import Path
    from odradek.coordination.sqlite import SqliteTree
    from odradek.coordination.tree import SessionExpired
    tree = SqliteTree(Path(sys.argv[1]), session_timeout_ms=int(sys.argv[2]))
    expired = threading.Event()
    tree.on_session(lambda state: (print(state.name, flush=True), expired.set()))
    tree.create("/held", ephemeral=True)
    print("holding", flush=True)
    expired.wait()
    try:
        tree.create("/again", ephemeral=True)
    except SessionExpired as error:
        print(error, flush=True)
    tree.close()
"""


def test_session_of_a_killed_process_ends_without_waiting_for_the_timeout(path: Path) -> None:
    process = python(HOLD, path, 60_000)
    assert read_line(process) == "holding"
    process.kill()
    process.wait()
    began = time.perf_counter()
    with SqliteTree(path) as tree:
        tree.create("/held", ephemeral=True)
    assert time.perf_counter() - began < 50, "its session was of 60 seconds"


def test_session_of_a_running_process_stays_alive(path: Path) -> None:
    # Much longer than a busy machine may delay the heartbeats of either process.
    process = python(HOLD, path, 2_000)
    assert read_line(process) == "holding"
    with SqliteTree(path, session_timeout_ms=2_000) as tree:
        time.sleep(3)
        with pytest.raises(NodeExists):
            tree.create("/held")
    process.kill()
    process.wait()


def test_session_of_a_hung_process_expires(path: Path, seen: Seen) -> None:
    process = python(HOLD, path, 300)
    assert read_line(process) == "holding"
    with SqliteTree(path, session_timeout_ms=300) as tree:
        tree.exists("/held", seen)
        process.send_signal(signal.SIGSTOP)
        assert seen.take() == [WatchEvent(EventKind.DELETED, "/held")]
        process.send_signal(signal.SIGCONT)
        assert read_line(process) == "EXPIRED"
        assert read_line(process) == "The metadata tree session expired."
        assert process.wait(10) == 0
        assert tree.children("/") == []


def beats(path: Path) -> set[bytes]:
    return {one.read_bytes() for one in path.parent.glob(f"{path.name}.session-*")}


def test_pause_of_all_processes_expires_no_session(path: Path) -> None:
    """The first process to resume sees that the others were silent, and that it was silent itself."""
    first, second = (python(HOLD.replace("/held", f"/{name}"), path, 5_000) for name in "ab")
    assert read_line(first) == read_line(second) == "holding"
    for process in (first, second):
        process.send_signal(signal.SIGSTOP)
    time.sleep(6)
    first.send_signal(signal.SIGCONT)
    time.sleep(1.5)  # It has checked the other session at least once.
    silent = beats(path)
    second.send_signal(signal.SIGCONT)
    while len(beats(path) - silent) < 2:  # From now on, the checking process has not been paused itself.
        time.sleep(0.01)
    with SqliteTree(path) as tree:
        assert tree.children("/") == ["a", "b"]
    for process in (first, second):
        process.kill()
        process.wait()


def test_expired_session_refuses_operations_and_fires_no_watches(path: Path, seen: Seen) -> None:
    states: SimpleQueue[SessionState] = SimpleQueue()
    with SqliteTree(path) as tree, SqliteTree(path) as other:
        other.on_session(states.put)
        other.create("/e", ephemeral=True)
        other.get("/e", seen)
        with tree._write() as writer:
            writer.end_session(other.session_id)
        assert tree.exists("/e") is None
        with pytest.raises(SessionExpired):
            other.exists("/")
        with pytest.raises(SessionExpired):
            other.create("/a")
        assert states.get(timeout=5) is SessionState.EXPIRED
        tree.create("/e")
        assert seen.nothing(tree)


def test_stray_session_files_are_removed(path: Path) -> None:
    SqliteTree(path).close()
    stray = path.with_name("tree.sqlite.session-00000000000000ff")
    stray.write_bytes(b"")
    with SqliteTree(path):
        assert not stray.exists()
        assert len(list(path.parent.glob("*.session-*"))) == 1


# Watches across processes.


@pytest.fixture
def short_journal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sqlite, "JOURNAL_ZXIDS", 10)
    monkeypatch.setattr(sqlite, "_PRUNE_EVERY", 1)


@pytest.mark.usefixtures("short_journal")
def test_journal_is_bounded(path: Path) -> None:
    with SqliteTree(path) as tree:
        for i in range(50):
            tree.create(f"/{i}")
        assert tree._database.execute("SELECT count(*) FROM journal").fetchone() == (10,)


@pytest.mark.usefixtures("short_journal")
def test_session_behind_the_journal_derives_events_from_the_nodes(path: Path, seen: Seen) -> None:
    with SqliteTree(path) as tree, SqliteTree(path, poll_ms=3_600_000, session_timeout_ms=3_600_000) as behind:
        sets = {name: tree.create(f"/{name}") for name in ("changed", "deleted", "parent", "emptied", "same")}
        tree.create("/emptied/child")
        for node in ("/changed", "/deleted", "/same"):
            behind.get(node, seen)
        for node in ("/parent", "/emptied", "/same"):
            behind.children(node, seen)
        behind.exists("/made", seen)
        behind.exists("/never", seen)
        behind._wake.set()  # Its thread now starts to wait for the poll interval.
        time.sleep(0.05)
        tree.set("/changed", b"")
        tree.delete("/deleted")
        tree.create("/parent/child")
        tree.delete("/emptied/child")
        tree.delete("/emptied")
        tree.create("/made")
        for i in range(30):
            tree.create(f"/other{i}")
        behind.exists("/")  # Any next operation catches up first.
        assert set(seen.take(5)) == {
            WatchEvent(EventKind.DATA_CHANGED, "/changed"),
            WatchEvent(EventKind.DELETED, "/deleted"),
            WatchEvent(EventKind.CHILDREN_CHANGED, "/parent"),
            WatchEvent(EventKind.DELETED, "/emptied"),
            WatchEvent(EventKind.CREATED, "/made"),
        }
        assert seen.nothing(behind)
        assert len(sets) == 5


def test_watch_event_is_queued_before_a_read_returns_the_change(path: Path) -> None:
    """When a read returns another process's change, its watch event has been queued before."""
    with SqliteTree(path) as tree, SqliteTree(path, poll_ms=3_600_000, session_timeout_ms=3_600_000) as reader:
        tree.create("/a", b"0")
        called: list[str] = []
        queued = reader._caller.call
        reader._caller.call = lambda function: (called.append("event"), queued(function))[1]  # type: ignore[method-assign]
        for i in range(1, 20):
            reader.get("/a", lambda event: None)
            tree.set("/a", b"%d" % i)
            data, _ = reader.get("/a")
            assert int(data) == i
            assert len(called) == i


def test_changes_through_another_session_fire_watches(path: Path, seen: Seen) -> None:
    with SqliteTree(path) as tree, SqliteTree(path, poll_ms=10) as other:
        tree.create("/a")
        for _ in range(20):
            other.get("/a", seen)
            tree.set("/a", b"")
            seen.take()


# Threads.


def test_tree_may_be_shared_by_many_threads(path: Path, seen: Seen) -> None:
    with SqliteTree(path) as tree:
        tree.create("/n", b"0")
        failures: list[BaseException] = []

        def work(number: int) -> None:
            try:
                for i in range(20):
                    tree.create(f"/n/{number}-{i}")
                    tree.children("/n", seen)
                    increment(tree, "/n")
                    tree.delete(f"/n/{number}-{i}")
            except BaseException as error:
                failures.append(error)

        threads = [threading.Thread(target=work, args=(number,)) for number in range(6)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert not failures
        data, stat = tree.get("/n")
        assert (int(data), stat.version, stat.cversion, stat.num_children) == (120, 120, 240, 0)


def test_watch_may_close_the_tree(path: Path) -> None:
    tree = SqliteTree(path)
    tree.create("/a")
    closed = threading.Event()
    tree.get("/a", lambda event: (tree.close(), closed.set())[0])
    with SqliteTree(path) as other:
        other.set("/a", b"")
        assert closed.wait(10)
    with pytest.raises(Unavailable, match="is closed"):
        tree.get("/a")
