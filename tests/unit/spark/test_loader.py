"""Parts of the loader that do not need Spark."""

from io import StringIO

import pytest
from rich.console import Console

from odradek.spark.load_progress import bar
from odradek.spark.load_session import is_caused_by_stop
from odradek.spark.loader import LoadFailed, reason_of


def test_reason_is_extracted_from_sparks_message():
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


def test_failure_caused_by_a_stop_counts_as_a_stop() -> None:
    """In py4j, the signal arrives while it waits for Java, and closing the connection then fails as well."""
    stop, closing = KeyboardInterrupt(), OSError(107, "Transport endpoint is not connected")
    closing.__context__ = stop
    failed = LoadFailed("Spark's Java process ended")
    failed.__cause__ = closing
    assert is_caused_by_stop(failed)
    assert not is_caused_by_stop(LoadFailed("A Spark task failed"))


@pytest.mark.parametrize("is_terminal", [False, True])
def test_brackets_of_a_pattern_are_not_interpreted_as_markup(is_terminal: bool) -> None:
    console = Console(file=StringIO(), force_terminal=is_terminal, width=100)
    with bar(console, "[a-z]+-orders") as progress:
        progress.waiting(10)
        progress.loaded(5, 5)
    assert isinstance(console.file, StringIO)
    assert "[a-z]+-orders" in console.file.getvalue()
