"""All clients for some seconds, then a final read of everything; their events are written to a file.

It ends after its standard input has ended, with status 0 and a complete history, or with another status and a message
about the failure.
"""

from __future__ import annotations

import argparse
import os
import shlex
import sys
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

from checker.history import operations
from workload.final import read_everything
from workload.offset_reader import Teller
from workload.programs import Program
from workload.readers import AssignedReader, Member
from workload.recorder import PROGRAM_SUFFIX, Recorder, read_history
from workload.senders import Sender
from workload.settings import PROTOCOLS, Clients, GroupProtocol
from workload.transactors import GroupTransactor, Transactor
from workload.tried import is_enough
from workload.worker import Partition, Setting, Worker
from workload.worker_processes import FORK, Apart, ended

ENOUGH_SECONDS_MAX = 120.0  # In addition to the requested ones.
CLOSE_SECONDS_MAX = 60.0
TELLER = 12  # Its process number, after those of the clients.
# The names of the groups do not depend on their members.
GROUPS = [f"{name}-{protocol}" for name in ("readers", "transactors") for protocol in PROTOCOLS]


def main() -> int:
    parser = argparse.ArgumentParser(prog="workload")
    parser.add_argument("address")
    parser.add_argument("history", type=Path)
    parser.add_argument("topics", nargs="+", help="NAME:PARTITIONS")
    parser.add_argument("--seconds", type=float, required=True)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--newest", choices=PROTOCOLS, default=PROTOCOLS[-1], help="protocol that the brokers have")
    parser.add_argument("--in-flight", type=int, default=5, help="requests of a producer")
    parser.add_argument("--over", type=Path, help="a file: it goes on until that is there")
    parser.add_argument("--program", default="", help="the command of a workload in another language")
    arguments = parser.parse_args()
    pairs = (topic.rpartition(":") for topic in arguments.topics)
    partitions = [Partition(name, number) for name, _, count in pairs for number in range(int(count))]
    with Recorder(arguments.history) as recorder:
        shared = Clients(arguments.address, arguments.in_flight)
        is_over = FORK.Event()
        setting = Setting(shared, partitions, recorder, is_over)
        workers = [*clients(setting, arguments), Teller(setting, TELLER, arguments.seed, GROUPS)]
        apart = [Apart(worker) for worker in workers]
        run(apart, arguments.history, arguments.seconds, arguments.over)
        is_over.set()
        problems = ended(apart, CLOSE_SECONDS_MAX)
        if not problems:
            read_everything(setting)
    print("\n".join(problems), file=sys.stderr, flush=True)
    return 1 if problems else 0


def clients(setting: Setting, arguments: argparse.Namespace) -> list[Worker]:
    """Return the clients of librdkafka, or of a program, which writes to a file next to the history."""
    if not arguments.program:
        made = those_of_librdkafka(arguments.newest)
        assert len(made) == TELLER
        return [worker(setting, process, arguments.seed) for process, worker in enumerate(made)]
    notes = arguments.history.with_suffix(PROGRAM_SUFFIX)
    common = [arguments.address, str(notes), str(arguments.seed), arguments.newest]
    return [Program(setting, shlex.split(arguments.program), [*common, *arguments.topics])]


def those_of_librdkafka(newest: GroupProtocol) -> Sequence[Callable[[Setting, int, int], Worker]]:
    return (
        Sender,
        Sender,
        AssignedReader,
        partial(Member, protocol="classic"),
        partial(Member, protocol="classic"),
        partial(Member, protocol=newest),
        Transactor,
        Transactor,
        partial(GroupTransactor, protocol="classic"),
        partial(GroupTransactor, protocol="classic"),
        partial(GroupTransactor, protocol=newest),
        partial(GroupTransactor, protocol=newest),
    )


def run(workers: list[Apart], history: Path, seconds: float, over: Path | None) -> None:
    """Run until enough operations were tried, or one of the workers has ended."""
    for worker in workers:
        worker.start()
    time.sleep(seconds)
    while over is not None and not over.exists() and all(worker.is_alive() for worker in workers):
        time.sleep(0.1)
    until = time.monotonic() + ENOUGH_SECONDS_MAX
    while time.monotonic() < until and all(worker.is_alive() for worker in workers):
        if is_enough(operations(read_history(history)), seconds):
            break
        time.sleep(1)


if __name__ == "__main__":
    status = main()
    sys.stdout.flush()
    os._exit(status)  # This process ends even if a library hangs.
