"""Three brokers of Apache Kafka 4.4.0, KRaft, each broker and controller in one process."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Mapping
from pathlib import Path

from brokers import STOP_SECONDS_MAX, Kafka
from clusters import BROKERS, Cluster, until

from support.ports import free_port


class Kraft(Cluster):
    """Has the heap and the flags of its own kafka-server-start.sh."""

    name = "kafka"

    def __init__(self, folder: Path, settings: Mapping[str, str] = {}) -> None:
        super().__init__(folder, settings)
        self._voters = {broker: free_port() for broker in BROKERS}
        self._brokers = {
            broker: _Broker(folder / str(broker), broker, self._voters, self.settings) for broker in BROKERS
        }

    def start(self) -> None:
        for broker in BROKERS:
            self._brokers[broker].begin()  # A quorum has to be there before any of them answers.
        for broker in BROKERS:
            self._brokers[broker].wait()

    def stop(self) -> None:
        for broker in self._brokers.values():
            broker.request_stop()
        for broker in self._brokers.values():
            broker.stop()

    def stop_one(self, broker: int) -> None:
        self._brokers[broker].stop()

    def kill(self, broker: int) -> None:
        self._brokers[broker].kill()

    def start_again(self, broker: int) -> None:
        self._brokers[broker].begin()
        self._brokers[broker].wait()

    def port(self, broker: int) -> int:
        return self._brokers[broker].port

    def pid(self, broker: int) -> int:
        return self._brokers[broker].pid

    def close(self) -> None:
        for broker in self._brokers.values():
            broker.kill()


class _Broker(Kafka):
    def __init__(self, folder: Path, number: int, voters: dict[int, int], settings: dict[str, str]) -> None:
        super().__init__(folder)
        controller = f"127.0.0.1:{voters[number]}"
        self.settings = {  # type: ignore[misc]  # Of this one, not of all.
            "node.id": str(number),
            "controller.quorum.voters": ",".join(f"{voter}@127.0.0.1:{port}" for voter, port in voters.items()),
            "listeners": f"PLAINTEXT://127.0.0.1:{self.port},CONTROLLER://{controller}",
            **settings,
        }

    def begin(self) -> None:
        self.prepare()
        with (self.folder / "output.txt").open("ab") as output:
            environment = {**os.environ, **self.environment()}
            self._process = subprocess.Popen(
                self.command(), stdout=output, stderr=output, cwd=self.folder, env=environment
            )

    def wait(self) -> None:
        until(self.answers)

    def request_stop(self) -> None:
        assert self._process is not None
        self._process.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        """Ends it, if it is paused, too."""
        if self._process is not None:
            self._process.kill()
            self._process.wait(STOP_SECONDS_MAX)
            self._process = None
