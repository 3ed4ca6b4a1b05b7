"""Faults in a simulated world until it is healed, drawn from the seed."""

from __future__ import annotations

import errno
from collections.abc import Callable, Sequence
from functools import partial
from random import Random

from odradek.core.cleaner.cleaning_steps import Clean, Cleaned
from odradek.log.compaction.cleaner import CleaningAborted
from sim.history import History
from sim.simbroker import SimBroker
from sim.simclock import MILLISECOND_US, SECOND_US, SimClock, SimNode
from sim.simdisk import Stopped
from sim.simnet import SimNetwork
from sim.simshell import clean

PAUSE_US = (500 * MILLISECOND_US, 9 * SECOND_US)
LASTS_US = (100 * MILLISECOND_US, 12 * SECOND_US)
DOWN_US = (50 * MILLISECOND_US, 5 * SECOND_US)
CALLS_BEFORE_MAX = 60  # Executed by the disk before the failure.
ROOM_BYTES_MAX = 4_000
ENDS_AMID_SHARE = 0.05
CALLS_OF_CLEANER_MAX = 40


class Faults:
    """Faults of some kinds: a world with all of them would never make progress.

    `only` names the kinds, independently of the seed.
    """

    def __init__(
        self,
        random: Random,
        clock: SimClock,
        network: SimNetwork,
        broker: SimBroker,
        history: History,
        *,
        only: Sequence[str] = (),
    ) -> None:
        self._random = random
        self._clock = clock
        self._network = network
        self._broker = broker
        self._history = history
        self._until_us = 0
        self._amid_cleaning = Random(f"amid cleaning {history.seed}")
        self._has_broken_disk = False
        kinds: dict[str, Callable[[], None]] = {
            "kill": self._kill,
            "power": self._lose_power,
            "stop": self._stop,
            "pause broker": self._pause_broker,
            "pause client": self._pause_client,
            "cut": self._cut,
            "reset": self._reset,
            "wall": self._set_wall,
            "disk": self._break_disk,
        }
        chosen = random.sample(list(kinds), random.randrange(1, 5))
        self._kinds = [kinds[name] for name in only or chosen]

    def begin(self, until_us: int) -> None:
        self._until_us = until_us
        self._broker.on_ended = self._restart_later
        self._broker.on_dropped = self._note_power_loss
        self._broker.run_clean = self._clean
        self._next()

    def heal(self) -> None:
        """End all faults; a broker with a failed disk is restarted, since offline logs stay offline."""
        self._network.heal_all()
        for node in self._network.nodes.values():
            node.resume()
        self._broker.disk.mend()
        if self._has_broken_disk and self._broker.is_running:
            self._add_event("replaced", "the broker")
            self._random.choice((self._broker.kill, self._broker.stop))()

    def _next(self) -> None:
        self._clock.after(self._random.randrange(*PAUSE_US), self._strike)

    def _strike(self) -> None:
        if self._clock.now_us < self._until_us:
            self._random.choice(self._kinds)()
            self._next()

    def _add_event(self, event: str, detail: str = "") -> None:
        self._history.add("world", event, detail)

    def _clients(self) -> list[SimNode]:
        return [node for node in self._network.nodes.values() if node is not self._broker.node]

    def _end_later(self, end: Callable[[], None]) -> None:
        self._clock.after(self._random.randrange(*LASTS_US), end)

    # The broker's process.

    def _kill(self) -> None:
        if self._broker.is_running:
            self._add_event("kill")
            self._broker.kill()

    def _lose_power(self) -> None:
        if self._broker.is_running:
            self._add_event("power", "lost")
            self._note_power_loss()
            self._broker.lose_power()

    def _clean(self, step: Clean) -> Cleaned:
        """Run a step of the cleaner; if processes may die, they sometimes do at one of its calls."""
        ends = [end for end in (self._kill, self._lose_power) if end in self._kinds]
        shell, random = self._broker.shell, self._amid_cleaning
        is_safe = not ends or shell is None or shell.is_stopped or self._clock.now_us >= self._until_us
        if is_safe or random.random() >= ENDS_AMID_SHARE:
            return clean(step)
        self._broker.disk.stop_at(random.randrange(CALLS_OF_CLEANER_MAX))
        try:
            return clean(step)
        except Stopped as stopped:
            self._add_event("amid", f"cleaning, before {stopped}")
            random.choice(ends)()
            return Cleaned(step, None, CleaningAborted())  # Nobody hears of it.
        finally:
            self._broker.disk.stop_at(None)

    def _note_power_loss(self) -> None:
        self._history.power_failures_us.append(self._clock.now_us)

    def _stop(self) -> None:
        if self._broker.is_running and not self._broker.node.is_paused:
            self._add_event("stop")
            self._broker.stop()

    def _restart_later(self) -> None:
        self._clock.after(self._random.randrange(*DOWN_US), self._restart)

    def _restart(self) -> None:
        self._add_event("restart")
        self._broker.start()

    # Its disk.

    def _break_disk(self) -> None:
        """Make one call fail, or all changes for a while, or all syncs; or leave little space."""
        disk, before = self._broker.disk, self._random.randrange(CALLS_BEFORE_MAX)
        kind = self._random.choice(("once", "on", "sync", "full"))
        error = self._random.choice((errno.EIO, errno.ENOSPC))
        disk.mend()
        disk.reads_fail = error == errno.EIO and self._random.random() < 0.3
        if kind == "once":
            disk.fail_call(before, error)
        elif kind == "on":
            disk.fail_from(before, error)
        elif kind == "sync":
            disk.fails_to_sync = True
        else:
            disk.room = self._random.randrange(ROOM_BYTES_MAX)
        self._has_broken_disk = True
        self._add_event("disk", f"{kind} {errno.errorcode[error]} after {before}")
        self._end_later(self._mend_disk)

    def _mend_disk(self) -> None:
        self._add_event("disk", "mended")
        self._broker.disk.mend()
        if self._broker.is_offline:
            self._random.choice((self._kill, self._stop))()

    # Nodes and links.

    def _pause_broker(self) -> None:
        self._pause(self._broker.node)

    def _pause_client(self) -> None:
        self._pause(self._random.choice(self._clients()))

    def _pause(self, node: SimNode) -> None:
        if not node.is_paused:
            life = node.life
            self._add_event("pause", node.name)
            node.pause()
            self._end_later(lambda: self._resume(node, life))

    def _resume(self, node: SimNode, life: int) -> None:
        if node.is_paused and node.life == life:
            self._add_event("go on", node.name)
            node.resume()

    def _set_wall(self) -> None:
        ahead_ms = self._random.choice((-3_600_000, -5_000, 0, 5_000, 3_600_000))
        self._add_event("wall", f"{ahead_ms} ms ahead")
        self._broker.node.set_wall(ahead_ms)
        self._history.walls_ahead_ms.append(ahead_ms)

    def _cut(self) -> None:
        """Cut one direction, or both."""
        ours, theirs = self._broker.node.name, self._random.choice(self._clients()).name
        both = (ours, theirs), (theirs, ours)
        for source, target in self._random.choice((both[:1], both[1:], both)):
            self._add_event("cut", f"{source} to {target}")
            self._network.cut(source, target)
            self._end_later(partial(self._heal, source, target))

    def _heal(self, source: str, target: str) -> None:
        self._add_event("heal", f"{source} to {target}")
        self._network.heal(source, target)

    def _reset(self) -> None:
        sockets = self._network.sockets_of(self._broker.node)
        if sockets:
            socket = self._random.choice(sockets)
            self._add_event("reset", f"{socket.peer_name} {socket.number}")
            self._network.reset(socket)
