"""Exceptions of confluent-kafka, converted to ClientError."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from confluent_kafka import KafkaError, KafkaException

from clients.client import ClientError


@contextmanager
def as_client_error() -> Iterator[None]:
    try:
        yield
    except KafkaException as error:
        raise seen(error.args[0]) from error


def seen(error: KafkaError) -> ClientError:
    return ClientError(error.code(), f"{error.name()}: {error.str()}")
