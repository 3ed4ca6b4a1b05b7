"""Virtual time: a queue of events, and the nodes whose clocks read it, without waiting and without threads.

Events happen in the order of their times, and those of the same time in the order in which they were scheduled. A node
is a machine: its processes come and go, and the end of a process cancels all that it had scheduled. A paused node
(SIGSTOP, a virtual machine in migration) does nothing; the events due in the meantime happen late, when it resumes.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable
from itertools import count
from random import Random

from odradek.base.units import TimestampMs
from odradek.core.kernel.moment import Moment

MILLISECOND_US = 1000
SECOND_US = 1000 * MILLISECOND_US
WALL_BEGIN_MS = 1_700_000_000_000
STEADY_BEGIN_MS = 1_000_000  # A machine has been up for a while when its first process starts.

Action = Callable[[], None]


class Timer:
    """One scheduled action."""

    __slots__ = ("_action",)

    def __init__(self, action: Action) -> None:
        self._action: Action | None = action

    @property
    def is_set(self) -> bool:
        return self._action is not None

    def cancel(self) -> None:
        """Cancel the action; this has no effect once it has run."""
        self._action = None

    def fire(self) -> None:
        action, self._action = self._action, None
        if action is not None:
            action()


class SimClock:
    """The time of one simulated world, in microseconds since its beginning."""

    def __init__(self) -> None:
        self.now_us = 0
        self.events = 0
        self._heap: list[tuple[int, int, Timer]] = []
        self._numbers = count()

    def at(self, time_us: int, action: Action) -> Timer:
        assert time_us >= self.now_us, "nothing happens in the past"
        timer = Timer(action)
        self._plan(time_us, timer)
        return timer

    def after(self, delay_us: int, action: Action) -> Timer:
        return self.at(self.now_us + delay_us, action)

    def plan(self, delay_us: int, timer: Timer) -> None:
        """Schedule a timer of another class, as `after` does."""
        self._plan(self.now_us + delay_us, timer)

    def _plan(self, time_us: int, timer: Timer) -> None:
        heapq.heappush(self._heap, (time_us, next(self._numbers), timer))

    def step(self) -> bool:
        """Run the next event; return False if there is none."""
        if self._next_us() is None:
            return False
        self.now_us, _, timer = heapq.heappop(self._heap)
        self.events += 1
        timer.fire()
        return True

    def _next_us(self) -> int | None:
        """Return the time of the next event, after dropping cancelled ones."""
        while self._heap and not self._heap[0][2].is_set:
            heapq.heappop(self._heap)
        return self._heap[0][0] if self._heap else None

    def run_until(self, time_us: int) -> None:
        heap, pop = self._heap, heapq.heappop
        while heap and heap[0][0] <= time_us:  # Like `step`, but inlined, since it runs very often.
            next_us, _, timer = pop(heap)
            if timer.is_set:
                self.now_us = next_us
                self.events += 1
                timer.fire()
        self.now_us = max(self.now_us, time_us)

    def run_while(self, condition: Callable[[], bool], until_us: int) -> bool:
        """Run while the condition holds, up to the given time; return True if it no longer holds."""
        while condition():
            next_us = self._next_us()
            if next_us is None or next_us > until_us:
                self.now_us = max(self.now_us, until_us)
                return not condition()
            self.step()
        return True

    def run_idle(self) -> None:
        """Run until no event is scheduled any more."""
        while self.step():
            pass


class NodeTimer(Timer):
    """An action of a process: it waits while the node is paused, and is cancelled by the end of the process."""

    __slots__ = ("_life", "_node")

    def __init__(self, node: SimNode, action: Action) -> None:
        self._action = action
        self._node = node
        self._life = node.life

    def fire(self) -> None:
        node = self._node
        if node.life != self._life:
            self.cancel()
        elif node.is_paused:
            node.hold(self)
        else:
            super().fire()


class SimNode:
    """One machine: a name on the network, its own clocks, and the process that runs on it."""

    def __init__(self, clock: SimClock, name: str, random: Random) -> None:
        self.clock = clock
        self.name = name
        self.random = random
        self.life = 0  # A new one for each process.
        self.is_paused = False
        self.is_up = True  # False during a power failure.
        self._held: list[NodeTimer] = []
        self._wall_ahead_ms = 0
        self._booted_us = 0
        self._read_us = -1  # When `_moment` was now.
        self._moment = Moment(TimestampMs(0), 0)

    def now(self) -> Moment:
        now_us = self.clock.now_us
        if now_us != self._read_us:
            wall_ms = WALL_BEGIN_MS + now_us // MILLISECOND_US + self._wall_ahead_ms
            steady_ms = STEADY_BEGIN_MS + (now_us - self._booted_us) // MILLISECOND_US
            self._read_us, self._moment = now_us, Moment(TimestampMs(wall_ms), steady_ms)
        return self._moment

    def set_wall(self, ahead_ms: int) -> None:
        """Set the wall clock forward or back; the monotonic clock is not affected."""
        self._wall_ahead_ms = ahead_ms
        self._read_us = -1

    def after(self, delay_us: int, action: Action) -> Timer:
        """Schedule an action of the current process."""
        timer = NodeTimer(self, action)
        self.clock.plan(delay_us, timer)
        return timer

    def soon(self, action: Action) -> Timer:
        """Schedule an action in another turn of the process's loop."""
        return self.after(0, action)

    def hold(self, timer: NodeTimer) -> None:
        self._held.append(timer)

    def pause(self) -> None:
        self.is_paused = True

    def resume(self) -> None:
        """Resume the node, and run the events that were due during the pause, in order."""
        self.is_paused = False
        held, self._held = self._held, []
        for timer in held:
            self.clock.plan(0, timer)

    def end_process(self) -> None:
        """Cancel all that the process had scheduled; a paused process can be killed, too."""
        self.life += 1
        self.is_paused = False
        self._held.clear()

    def lose_power(self) -> None:
        self.end_process()
        self.is_up = False

    def boot(self) -> None:
        """Restart the monotonic clock, since no process saw both boots."""
        if not self.is_up:
            self.is_up = True
            self._booted_us = self.clock.now_us
            self._read_us = -1
