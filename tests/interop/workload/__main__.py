"""All clients for some seconds, then a last look at everything; what they did goes to a file.

It ends by itself, with status 0 and a history that is whole, or with another and a word on what went wrong.
"""

from __future__ import annotations

import argparse
import os
import shlex
import sys
import threading
import time
import traceback
from collections.abc import Callable
from functools import partial
from pathlib import Path

from workload.final import read_everything
from workload.programs import Program
from workload.readers import AssignedReader, Member
from workload.recorder import PROGRAM_SUFFIX, Recorder
from workload.senders import Sender
from workload.settings import Clients
from workload.teller import Teller
from workload.transactors import GroupTransactor, Transactor
from workload.worker import Partition, Setting, Worker

CLOSE_SECONDS_MAX = 120.0
WORKERS: tuple[Callable[[Setting, int, int], Worker], ...] = (
    Sender,
    Sender,
    AssignedReader,
    partial(Member, protocol="classic"),
    partial(Member, protocol="classic"),
    partial(Member, protocol="consumer"),
    Transactor,
    Transactor,
    partial(GroupTransactor, protocol="classic"),
    partial(GroupTransactor, protocol="classic"),
    partial(GroupTransactor, protocol="consumer"),
    partial(GroupTransactor, protocol="consumer"),
)
# The groups have the same names, whoever is in them.
GROUPS = [f"{name}-{protocol}" for name in ("readers", "transactors") for protocol in ("classic", "consumer")]


def main() -> int:
    parser = argparse.ArgumentParser(prog="workload")
    parser.add_argument("address")
    parser.add_argument("history", type=Path)
    parser.add_argument("topics", nargs="+", help="NAME:PARTITIONS")
    parser.add_argument("--seconds", type=float, required=True)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--program", default="", help="the command of a workload in another language")
    arguments = parser.parse_args()
    pairs = (topic.rpartition(":") for topic in arguments.topics)
    partitions = [Partition(name, number) for name, _, count in pairs for number in range(int(count))]
    with Recorder(arguments.history) as recorder:
        setting = Setting(Clients(arguments.address), partitions, recorder, threading.Event())
        workers = [*clients(setting, arguments), Teller(setting, len(WORKERS), arguments.seed, GROUPS)]
        problems = run(setting, workers, arguments.seconds)
        if not problems:
            read_everything(setting)
    print("\n".join(problems), file=sys.stderr, flush=True)
    return 1 if problems else 0


def clients(setting: Setting, arguments: argparse.Namespace) -> list[Worker]:
    """Those of librdkafka, or of a program, which writes to a file beside the history."""
    if not arguments.program:
        return [worker(setting, process, arguments.seed) for process, worker in enumerate(WORKERS)]
    notes = arguments.history.with_suffix(PROGRAM_SUFFIX)
    told = [arguments.address, str(notes), str(arguments.seconds), str(arguments.seed), *arguments.topics]
    return [Program(setting, shlex.split(arguments.program), told)]


def run(setting: Setting, workers: list[Worker], seconds: float) -> list[str]:
    """What went wrong with the clients themselves."""
    for worker in workers:
        worker.start()
    time.sleep(seconds)
    setting.is_over.set()
    until = time.monotonic() + CLOSE_SECONDS_MAX
    problems = []
    for worker in workers:
        worker.join(max(0.0, until - time.monotonic()))
        if worker.is_alive():
            frame = sys._current_frames().get(worker.ident or 0)
            problems.append(f"{worker.name} hangs:\n{''.join(traceback.format_stack(frame))}")
        elif worker.error is not None:
            problems.append(f"{worker.name}:\n{''.join(traceback.format_exception(worker.error))}")
    return problems


if __name__ == "__main__":
    status = main()
    sys.stdout.flush()
    os._exit(status)  # Whatever hangs in a library, this process ends.
