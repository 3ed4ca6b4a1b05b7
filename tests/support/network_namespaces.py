"""Hosts in network namespaces, joined by a bridge that can drop packets, in one or both directions.

Dropped packets are sent to a hardware address that no host has, so nothing is refused. This needs no packet filter,
only `ip` and the right to create namespaces; `reason_to_skip` reports what is missing.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from contextlib import ExitStack, suppress
from functools import cache
from itertools import count
from types import TracebackType

_UNUSED_MAC = "02:00:00:00:00:01"
_numbers = count()


def _ip(*arguments: str) -> str:
    done = subprocess.run(["ip", *arguments], check=False, capture_output=True, text=True, timeout=60)
    if done.returncode:
        raise OSError(f"ip {' '.join(arguments)}: {done.stderr.strip()}")
    return done.stdout


@cache
def reason_to_skip() -> str:
    """Return why namespaces cannot be created here, or an empty string."""
    for program in ("ip", "nsenter"):
        if shutil.which(program) is None:
            return f"there is no {program} here"
    try:
        with Network(1):
            return ""
    except OSError as error:
        return f"network namespaces can't be made here: {error}"


class Host:
    """One namespace, or the test's own; `within` is the command that runs another command in it."""

    def __init__(self, network: str, address: str, namespace: str | None, device: str) -> None:
        self.address = address
        self.namespace = namespace
        self.device = device
        self.network = network
        self.within = () if namespace is None else ("nsenter", f"--net=/run/netns/{namespace}", "--")
        self._options = () if namespace is None else ("-n", namespace)

    def ip(self, *arguments: str) -> str:
        return _ip(*self._options, *arguments)

    def mac(self) -> str:
        (link,) = json.loads(self.ip("-j", "link", "show", self.device))
        return str(link["address"])


class Network:
    """A network of some hosts and the test's own, for `with`; its processes must have ended before its end."""

    def __init__(self, hosts: int) -> None:
        self._count = hosts
        self._name = f"od{os.getpid()}x{next(_numbers)}"  # A device's name has at most 15 characters.
        self._ends = ExitStack()
        self.hosts: list[Host] = []
        self._macs: dict[str, str] = {}

    def __enter__(self) -> Network:
        try:
            self._make()
        except BaseException:
            self._ends.close()
            raise
        return self

    def _make(self) -> None:
        bridge = self._name
        _ip("link", "add", bridge, "type", "bridge", "forward_delay", "0")
        self._ends.callback(_ip, "link", "del", bridge)
        _ip("link", "set", bridge, "up")
        network = _free_network()
        _ip("addr", "add", f"{network}.1/24", "dev", bridge)
        self.here = Host(network, f"{network}.1", None, bridge)
        for number in range(self._count):
            self.hosts.append(self._host(number, network))
        self._macs = {one.address: one.mac() for one in (self.here, *self.hosts)}

    def _host(self, number: int, network: str) -> Host:
        namespace = f"{self._name}n{number}"
        _ip("netns", "add", namespace)
        self._ends.callback(_ip, "netns", "del", namespace)
        made = Host(network, f"{network}.{number + 2}", namespace, "eth0")
        _ip("link", "add", namespace, "type", "veth", "peer", "name", "eth0", "netns", namespace)
        # A namespace lives until its last connection ends; this frees the name at once.
        self._ends.callback(_without, "link", "del", namespace)
        _ip("link", "set", namespace, "master", self._name, "up")
        made.ip("addr", "add", f"{made.address}/24", "dev", "eth0")
        made.ip("link", "set", "eth0", "up")
        made.ip("link", "set", "lo", "up")
        return made

    def lose(self, sender: Host, receiver: Host) -> None:
        """Drop all packets from the sender to the receiver from now on."""
        self._reach(sender, receiver, _UNUSED_MAC)

    def cut(self, one: Host, *others: Host) -> None:
        """Drop all packets between one host and some others, by default all and the test itself."""
        for other in others or (self.here, *self.hosts):
            if other is not one:
                self.lose(one, other)
                self.lose(other, one)

    def deafen(self, one: Host, *others: Host) -> None:
        """Drop all packets to one host from some others, by default all and the test; its own packets arrive."""
        for other in others or (self.here, *self.hosts):
            if other is not one:
                self.lose(other, one)

    def heal(self) -> None:
        """Drop no packets from now on."""
        all_hosts = (self.here, *self.hosts)
        for sender in all_hosts:
            for receiver in all_hosts:
                if sender is not receiver:
                    self._reach(sender, receiver, self._macs[receiver.address])

    @staticmethod
    def _reach(sender: Host, receiver: Host, mac: str) -> None:
        neighbour = (receiver.address, "lladdr", mac, "dev", sender.device, "nud", "permanent")
        sender.ip("neigh", "replace", *neighbour)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._ends.close()


def _without(*arguments: str) -> None:
    with suppress(OSError):
        _ip(*arguments)


def _free_network() -> str:
    """Return the first three numbers of an unused network, of those reserved for such tests."""
    taken = {
        one["local"].rpartition(".")[0]
        for link in json.loads(_ip("-j", "-4", "addr", "show"))
        for one in link["addr_info"]
    }
    start = os.getpid()
    for number in range(256):
        network = f"198.18.{(start + number) % 256}"
        if network not in taken:
            return network
    raise OSError("all networks are taken")
