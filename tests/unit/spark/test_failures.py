"""Which errors Spark shows without a traceback; what it shows then is in tests/interop/test_spark_read.py."""

from __future__ import annotations

import os
import sys
from importlib.machinery import ModuleSpec

import pytest

pytest.importorskip("pyspark")

from odradek.base.errors import ErrorCode, Refused
from odradek.client.connection.client_errors import KafkaUnavailable
from odradek.spark.cluster_interface import NoSuchTopic
from odradek.spark.failures import HIDE_TRACEBACK, told_in_a_sentence
from odradek.spark.reading import DataLoss, Stuck
from odradek.spark.sink import BadRow
from odradek.spark.source_options import BadOption

SENTENCES = [BadOption("x"), NoSuchTopic("x"), DataLoss("x"), Stuck("x"), BadRow("x"), KafkaUnavailable("x")]


@pytest.fixture(autouse=True)
def environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(HIDE_TRACEBACK, "")  # Put back afterwards, whatever the test makes of it.


def fail_with(error: Exception) -> str:
    """Returns the variable as the error leaves it."""
    with pytest.raises(type(error)), told_in_a_sentence():
        raise error
    return os.environ[HIDE_TRACEBACK]


@pytest.mark.parametrize("error", [*SENTENCES, Refused(ErrorCode.CORRUPT_MESSAGE)], ids=repr)
def test_a_worker_of_sparks_shows_the_sentence_alone(error: Exception, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys.modules["__main__"], "__spec__", ModuleSpec("pyspark.daemon", None))
    assert fail_with(error) == "1"


def test_a_bug_keeps_its_traceback(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys.modules["__main__"], "__spec__", ModuleSpec("pyspark.daemon", None))
    assert fail_with(KeyError("x")) == ""


def test_a_process_that_is_not_sparks_is_left_as_it_was() -> None:
    assert fail_with(SENTENCES[0]) == ""
