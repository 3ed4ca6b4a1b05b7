"""Reruns of failed tests that the change cannot reach; those that pass are reported as flakes.

    python tests/support/flakes.py BASE         after a run of pytest, whose cache has the failures of FailedTests

A test is reached by a change of its own file, of a file that it imports directly or indirectly, of a conftest.py, of
the set-up, and of a document if it reads documents. A test that starts processes (tests/interop, and files with the
marker `waits`) imports all of src. The exit status is 0 if no failed test is reached and all pass now; each is printed
under the heading `flake` and is to be fixed by the next change.
"""

from __future__ import annotations

import ast
import json
import os
import subprocess
import sys
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
IMPORTED_FROM = ("src", "tests", "tests/interop", "tests/sim")  # As in pyproject.toml for pytest.
REACH_ALL = ("pyproject.toml", "setup.py", "scripts/", ".ci/", "tests/golden/")
DOCUMENTS = ("docs/", "README.md", "CONTRIBUTING.md", "CHANGELOG.md", "SECURITY.md")
_KEPT = "odradek/failed"


class FailedTests:
    """The pytest plugin that keeps the failed tests of one run; `--lf` keeps those of earlier runs, too."""

    def __init__(self) -> None:
        self._failed: set[str] = set()

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed:
            self._failed.add(report.nodeid)

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        if "PYTEST_XDIST_WORKER" not in os.environ and session.config.pluginmanager.has_plugin("cacheprovider"):
            session.config.cache.set(_KEPT, sorted(self._failed))


def failed_tests() -> list[str]:
    """Return the node ids of the tests that failed in the last run."""
    path = ROOT / ".pytest_cache/v" / _KEPT
    return list(json.loads(path.read_text())) if path.exists() else []


def changed_files(base: str) -> list[str]:
    """Return the files that differ between the commit `base` and the working tree."""
    line = ["git", "diff", "--name-only", base]
    return subprocess.run(line, cwd=ROOT, capture_output=True, text=True, check=True).stdout.split()


def is_reached(test_file: str, changed: Iterable[str]) -> bool:
    """Return whether one of the changed files may change the outcome of the tests in a file."""
    text = (ROOT / test_file).read_text()
    imported = _closure(test_file)
    has_processes = "tests/interop/" in test_file or "mark.waits" in text
    reads_documents = any(document.rstrip("/") in text for document in DOCUMENTS)
    for file in changed:
        if file.startswith(REACH_ALL) or file.endswith("conftest.py") or file in imported:
            return True
        if has_processes and file.startswith("src/"):
            return True
        if reads_documents and file.startswith(DOCUMENTS):
            return True
        if file.startswith("tests/") and not file.endswith(".py") and Path(file).parent == Path(test_file).parent:
            return True  # Scenario files and programs in other languages.
    return False


@cache
def _closure(file: str) -> frozenset[str]:
    found, waiting = {file}, [file]
    while waiting:
        for path in _imported(waiting.pop()):
            if path not in found:
                found.add(path)
                waiting.append(path)
    return frozenset(found)


@cache
def _imported(file: str) -> frozenset[str]:
    tree = ast.parse((ROOT / file).read_text())
    return frozenset(path for name in _names(tree) for path in _files(name))


def _names(tree: ast.Module) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield node.module
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def _files(name: str) -> Iterator[str]:
    """Yield the file of a module and those of its packages, if they belong to this repository."""
    parts = name.split(".")
    for folder in IMPORTED_FROM:
        for count in range(1, len(parts) + 1):
            base = f"{folder}/{'/'.join(parts[:count])}"
            for candidate in (f"{base}.py", f"{base}/__init__.py"):
                if (ROOT / candidate).is_file():
                    yield candidate


def main(base: str) -> int:
    """Run the failed tests that a change since `base` can't reach again; return the exit status."""
    failed, changed = failed_tests(), changed_files(base)
    if not changed:  # As in a clone of the tested commit: the change is present, but unknown.
        print(f"not run again: nothing differs from {base}")
        return 1
    reached = [test for test in failed if is_reached(test.partition("::")[0], changed)]
    if reached or not failed:
        print(f"not run again: the change since {base} may reach {len(reached)} of {len(failed)} failed tests")
        return 1
    for test in failed:
        line = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", test]
        if subprocess.run(line, cwd=ROOT, check=False).returncode:
            return 1
    print("== flake", *failed, "These tests failed above and passed alone; fix them with the next change.", sep="\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
