from __future__ import annotations

import pickle

import pytest

from odradek.base.errors import RETRIABLE, ErrorCode
from odradek.client.connection import client_errors as errors
from odradek.client.connection.client_config import ClientConfig
from odradek.client.connection.client_errors import (
    ClientError,
    ErrorResponse,
    KafkaUnavailable,
    OffsetOutOfRange,
    UnknownTopic,
    response_error,
)
from odradek.client.connection.retry import Backoff, RetryDeadline, is_retriable


@pytest.mark.parametrize(
    "error",
    [
        ErrorResponse(ErrorCode.INVALID_CONFIG, "topic t", "Unknown topic config name: x"),
        UnknownTopic(3, "topic t"),
        OffsetOutOfRange("t", 2, 17),
        errors.KafkaUnavailable("cannot connect to a:1: connection refused"),
        errors.TopicRecreated("topic t was deleted"),
    ],
    ids=lambda error: type(error).__name__,
)
def test_errors_can_be_pickled(error: ClientError) -> None:
    back = pickle.loads(pickle.dumps(error))
    assert type(back) is type(error)
    assert str(back) == str(error)
    assert vars(back) == vars(error)


@pytest.mark.parametrize("code", [code for code in ErrorCode if code])
def test_every_error_code_gives_one_sentence_with_its_name(code: ErrorCode) -> None:
    error = response_error(code, "t-0")
    text = str(error)
    assert text.startswith("t-0: ")
    assert code.name in text
    assert "\n" not in text
    assert error.retriable == (code in RETRIABLE)


def test_error_shows_the_brokers_message() -> None:
    error = response_error(ErrorCode.INVALID_CONFIG, "topic t", "Unknown topic config name: x")
    assert str(error) == "topic t: Unknown topic config name: x (INVALID_CONFIG)"


def test_unknown_error_code_is_an_unknown_server_error() -> None:
    assert response_error(9999, "t-0").code == ErrorCode.UNKNOWN_SERVER_ERROR


def test_retriable_errors_are_recognized() -> None:
    assert is_retriable(KafkaUnavailable("x"))
    assert is_retriable(response_error(ErrorCode.NOT_LEADER_OR_FOLLOWER, "t-0"))
    assert not is_retriable(response_error(ErrorCode.INVALID_CONFIG, "t"))
    assert not is_retriable(errors.NotKafka("x"))


def test_backoff_doubles_up_to_its_bound() -> None:
    backoff = Backoff(ClientConfig("a:1", retry_backoff_ms=100, retry_backoff_max_ms=1000))
    waits = [backoff.next_ms() for _ in range(8)]
    for wait, expected in zip(waits, [100, 200, 400, 800, 1000, 1000, 1000, 1000], strict=True):
        assert 0.8 * expected <= wait <= 1.2 * expected


def test_patience_raises_the_last_error_at_its_deadline() -> None:
    config = ClientConfig("a:1", retry_backoff_ms=1, retry_backoff_max_ms=1)
    error = KafkaUnavailable("away")
    deadline = RetryDeadline(config, 20)
    with pytest.raises(KafkaUnavailable) as raised:
        for _ in range(1000):
            deadline.wait_or_raise(error)
    assert raised.value is error
    with pytest.raises(errors.NotKafka):
        RetryDeadline(config, 60_000).wait_or_raise(errors.NotKafka("no"))
