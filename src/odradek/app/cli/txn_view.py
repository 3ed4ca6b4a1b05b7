"""Transactions and producers as shown by `odradek txn`: one structure for JSON and the tables."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import typer

from odradek.app.cli.group_view import cell, numbers
from odradek.app.terminal.output import print_table, printable, time_text
from odradek.client.admin.transaction_admin import ActiveProducer, TransactionDescription

Shown = dict[str, Any]


def transaction_view(transaction: TransactionDescription, now_ms: int) -> Shown:
    started = transaction.started_at_ms
    return {
        "transactional_id": transaction.transactional_id,
        "state": transaction.state,
        "producer_id": transaction.identity.producer_id,
        "epoch": transaction.identity.epoch,
        "coordinator": {"id": transaction.coordinator.id, "address": str(transaction.coordinator)},
        "timeout_ms": transaction.timeout_ms,
        "started": None if started < 0 else time_text(started),
        "duration_ms": None if started < 0 or not transaction.is_in_progress else max(0, now_ms - started),
        "partitions": numbers(transaction.partitions),
    }


def show_transactions(shown: Sequence[Shown]) -> None:
    for each in shown:
        coordinator = each["coordinator"]
        typer.echo(
            f"{printable(each['transactional_id'])}  {each['state']}  "
            f"producer {each['producer_id']} epoch {each['epoch']}  "
            f"coordinator {coordinator['address']} ({coordinator['id']})"
        )
        typer.echo(f"  timeout {each['timeout_ms']} ms")
        if each["started"] is not None:
            since = "" if each["duration_ms"] is None else f", {each['duration_ms'] / 1000:.1f} s ago"
            typer.echo(f"  started {each['started']}{since}")
        if each["partitions"]:
            typer.echo(f"  partitions {cell(each['partitions'])}")


def producer_view(producer: ActiveProducer) -> Shown:
    return {
        "producer_id": producer.identity.producer_id,
        "epoch": producer.identity.epoch,
        "last_sequence": absent(producer.last_sequence),
        "last_time": None if producer.last_timestamp < 0 else time_text(producer.last_timestamp),
        "coordinator_epoch": absent(producer.coordinator_epoch),
        "transaction_start": absent(producer.transaction_start),
    }


def absent(number: int) -> int | None:
    return None if number < 0 else number


PLACE = {"topic": "topic", "partition": "partition>", "transactional_id": "transactional id"}
PRODUCER = {
    "producer_id": "producer>",
    "epoch": "epoch>",
    "last_sequence": "last sequence>",
    "last_time": "last time",
    "coordinator_epoch": "coordinator epoch>",
    "transaction_start": "transaction from>",
}


def show_producers(shown: Sequence[Shown], *, with_place: bool = False) -> None:
    """Print a table of producers; with_place, each with its partition and transactional id."""
    titles = PLACE | PRODUCER if with_place else PRODUCER
    print_table(list(titles.values()), [[each[name] for name in titles] for each in shown])
