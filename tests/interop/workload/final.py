"""The final contents of the logs, each read with read_committed from its beginning to its end."""

from __future__ import annotations

import time

from confluent_kafka import Consumer, IsolationLevel, KafkaError, KafkaException
from confluent_kafka.admin import AdminClient, OffsetSpec  # type: ignore[attr-defined]  # Its stubs leave them out.

from checker.history import Kind, Outcome, Reset, Step
from workload.settings import CALL_SECONDS_MAX, Clients
from workload.worker import PAUSE_SECONDS, Partition, Setting, add_records

FINAL = -1  # The process.
SECONDS_MAX = 120.0  # Includes the time for open transactions to end.


def read_everything(setting: Setting) -> None:
    until = time.monotonic() + SECONDS_MAX
    for partition in setting.partitions:
        setting.recorder.invoke(FINAL, Kind.FINAL)
        steps: list[Step] = [Reset({partition.key: 0})]
        try:
            end = end_of(setting.clients, partition, until)
            is_read = _read(setting.clients, partition, end, steps, until)
            outcome, error = (Outcome.OK, "") if is_read else (Outcome.INFO, f"{end} was not reached")
        except KafkaException as failed:
            outcome, error = Outcome.INFO, failed.args[0].name()
        setting.recorder.complete(FINAL, outcome, steps, error)


def end_of(clients: Clients, partition: Partition, until: float) -> int:
    """Return the end of all written records, including open transactions."""
    admin = AdminClient(clients.common())
    while True:
        try:
            position = {partition.at(0): OffsetSpec.latest()}  # type: ignore[no-untyped-call]
            (future,) = admin.list_offsets(
                position, isolation_level=IsolationLevel.READ_UNCOMMITTED, request_timeout=CALL_SECONDS_MAX
            ).values()
            return int(future.result(CALL_SECONDS_MAX).offset)
        except KafkaException:
            if time.monotonic() > until:
                raise
            time.sleep(PAUSE_SECONDS)


def _read(clients: Clients, partition: Partition, end: int, steps: list[Step], until: float) -> bool:
    """Read up to the end; return whether it was reached."""
    consumer = Consumer(clients.consumer() | {"enable.partition.eof": True})
    consumer.assign([partition.at(0)])
    try:
        while time.monotonic() < until:
            message = consumer.poll(PAUSE_SECONDS)
            if message is None:
                continue
            error, offset = message.error(), message.offset()
            if error is None:
                add_records(steps, [message])
            elif error.code() == KafkaError._PARTITION_EOF and offset is not None and offset >= end:
                return True
        return False
    finally:
        consumer.close()
