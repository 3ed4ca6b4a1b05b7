"""The parts of the loader that need no Spark."""

from odradek.spark.loader import reason_of


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
