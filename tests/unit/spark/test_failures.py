"""Errors that Spark shows without a traceback. The resulting output is tested in tests/interop/test_spark_read.py."""

from __future__ import annotations

import os
import sys
from importlib.machinery import ModuleSpec

import pytest

pytest.importorskip("pyspark")

from odradek.base.errors import ErrorCode, Refused
from odradek.client.connection.client_errors import KafkaUnavailable
from odradek.spark.cluster_interface import NoSuchTopic
from odradek.spark.failures import HIDE_TRACEBACK, without_traceback
from odradek.spark.sink import BadRow
from odradek.spark.source_options import BadOption
from odradek.spark.task_reader import DataLoss, Stuck

SENTENCES = [BadOption("x"), NoSuchTopic("x"), DataLoss("x"), Stuck("x"), BadRow("x"), KafkaUnavailable("x")]


@pytest.fixture(autouse=True)
def environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(HIDE_TRACEBACK, "")  # Restored after the test.


def fail_with(error: Exception) -> str:
    """Raise the error in a worker, and return the environment variable that it sets."""
    with pytest.raises(type(error)), without_traceback():
        raise error
    return os.environ[HIDE_TRACEBACK]


@pytest.mark.parametrize("error", [*SENTENCES, Refused(ErrorCode.CORRUPT_MESSAGE)], ids=repr)
def test_spark_worker_shows_only_the_error_message(error: Exception, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys.modules["__main__"], "__spec__", ModuleSpec("pyspark.daemon", None))
    assert fail_with(error) == "1"


def test_unexpected_error_keeps_its_traceback(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys.modules["__main__"], "__spec__", ModuleSpec("pyspark.daemon", None))
    assert fail_with(KeyError("x")) == ""


def test_process_outside_spark_is_not_changed() -> None:
    assert fail_with(SENTENCES[0]) == ""
