"""kcat -G, with one process for each member. It commits periodically and when it leaves."""

from __future__ import annotations

import json
import subprocess

from clients.client import SECONDS_MAX, ClientError
from clients.librdkafka_groups import way_settings
from clients.members import FETCH_WAIT_MS, Joining, Place, PollingMember

COMMIT_MS = 100


class KcatMember(PollingMember):
    def __init__(self, address: str, joining: Joining) -> None:
        super().__init__()
        settings = {
            "client.id": joining.name,
            "auto.offset.reset": "earliest",
            "auto.commit.interval.ms": COMMIT_MS,
            "fetch.wait.max.ms": FETCH_WAIT_MS,
            **way_settings(joining),
        }
        options = [word for name, value in settings.items() for word in ("-X", f"{name}={value}")]
        self._process = subprocess.Popen(
            ["kcat", "-b", address, "-G", joining.group, "-q", "-u", "-J", *options, joining.topic],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        self.start()

    def work(self) -> None:
        assert self._process.stdout is not None and self._process.stderr is not None
        for line in self._process.stdout:
            message = json.loads(line)
            self.add([Place(message["partition"], message["offset"], message["payload"].encode())])
        _, errors = self._process.communicate()
        if self.is_running:
            raise ClientError(None, errors.decode(errors="replace"))

    def leave(self) -> None:
        self._is_over.set()
        self._process.terminate()
        try:
            self._process.wait(SECONDS_MAX)
        finally:
            self._process.kill()
        super().leave()
