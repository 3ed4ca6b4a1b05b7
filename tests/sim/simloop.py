"""The event loop of a simulated process, as far as its parts of net/ need one."""

from __future__ import annotations

from collections.abc import Callable

from sim.simclock import SECOND_US, SimNode, Timer


class SimLoop:
    """An event loop for delayed calls; implements net.ticking.Timers."""

    def __init__(self, node: SimNode) -> None:
        self._node = node

    def call_later(self, delay: float, callback: Callable[..., object], /, *arguments: object) -> Timer:
        def called() -> None:
            callback(*arguments)

        return self._node.after(round(delay * SECOND_US), called)
