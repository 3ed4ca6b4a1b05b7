"""The parts of the loader that need no Spark."""

from io import StringIO

import pytest
from rich.console import Console

from odradek.spark.load_progress import bar
from odradek.spark.load_session import comes_of_a_stop
from odradek.spark.loader import LoadFailed, reason_of


def test_the_reason_inside_sparks_message():
    message = (
        "An exception was thrown from the Python worker. Please see the stack trace below.\n"
        "Traceback (most recent call last):\n"
        '  File "parquet.py", line 9, in write\n'
        "    self._file.flush()\n"
        "OSError: [Errno 28] No space left on device\n"
        "\n\tat org.apache.spark.api.python.BasePythonRunner\n"
    )
    assert reason_of(message) == "OSError: [Errno 28] No space left on device"
    assert reason_of("Job aborted due to stage failure: it crashed\n\tat org.apache") == (
        "Job aborted due to stage failure: it crashed"
    )
    assert reason_of("") == ""


def test_what_fails_because_of_a_stop_is_a_stop() -> None:
    """As in py4j: the signal comes while it waits for Java, and closing the connection fails on top of that."""
    stop, closing = KeyboardInterrupt(), OSError(107, "Transport endpoint is not connected")
    closing.__context__ = stop
    failed = LoadFailed("Spark's Java process ended")
    failed.__cause__ = closing
    assert comes_of_a_stop(failed)
    assert not comes_of_a_stop(LoadFailed("A Spark task failed"))


@pytest.mark.parametrize("is_terminal", [False, True])
def test_a_pattern_in_brackets_is_shown_as_it_is(is_terminal: bool) -> None:
    console = Console(file=StringIO(), force_terminal=is_terminal, width=100)
    with bar(console, "[a-z]+-orders") as progress:
        progress.waiting(10)
        progress.loaded(5, 5)
    assert isinstance(console.file, StringIO)
    assert "[a-z]+-orders" in console.file.getvalue()
