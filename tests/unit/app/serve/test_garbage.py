"""Garbage collection in a broker's process, which examines few objects at a time.

Each test runs in its own process, because each process has only one collector.
"""

from __future__ import annotations

import subprocess
import sys

import pytest

pytestmark = pytest.mark.waits

START = """
import asyncio, gc, weakref
from odradek.app.serve.garbage import CONNECTIONS, GarbageCollector
from odradek.net.loop.traffic import Traffic

class Node:
    pass

def cycle():
    one, other = Node(), Node()
    one.other, other.other = other, one
    return one

looked_at = []

def note(phase, info):
    if phase == "start":
        looked_at.append(sum(len(gc.get_objects(generation)) for generation in range(info["generation"] + 1)))

loop, traffic = asyncio.new_event_loop(), Traffic()
garbage = GarbageCollector(loop, traffic)
garbage.start_collecting()
"""


def run(program: str) -> None:
    subprocess.run([sys.executable, "-c", START + program], check=True)


def test_no_collection_examines_all_long_lived_objects() -> None:
    run("""
gc.callbacks.append(note)
kept = [[number] for number in range(500_000)]
assert len(looked_at) > 30
assert max(looked_at) < 20_000, max(looked_at)
assert gc.get_freeze_count() > 400_000
""")


def test_young_garbage_is_collected() -> None:
    run("""
seen = weakref.ref(cycle())
kept = [[number] for number in range(50_000)]
assert seen() is None
""")


def test_objects_of_a_long_turn_are_not_examined() -> None:
    run("""
from odradek.app.serve.garbage import CollectionPause
from odradek.net.loop.turns import Turns
kept = []
def turn():
    gc.callbacks.append(note)
    kept.extend([number] for number in range(100_000))
    kept.append(list(kept))
    assert not looked_at
turns = Turns(loop)
turns.around = CollectionPause()
turns.wait(turn)
loop.call_soon(loop.stop)
loop.run_forever()
seen = weakref.ref(cycle())
later = [[number] for number in range(50_000)]
assert seen() is None, "what came later is"
assert max(looked_at) < 20_000, max(looked_at)
""")


def test_only_large_numbers_of_objects_are_frozen() -> None:
    run("""
from odradek.app.serve.garbage import CollectionPause
gc.disable()  # Else it begins where it likes.
gc.freeze()
frozen, gc_of = gc.get_freeze_count(), CollectionPause(1_000)
with gc_of:
    few = [[number] for number in range(500)]
assert gc.isenabled() and gc.get_freeze_count() == frozen
with gc_of:
    many = [[number] for number in range(1_000)]
assert gc.isenabled() and gc.get_freeze_count() > frozen + 1_000
""")


def test_old_garbage_is_collected_after_many_connections() -> None:
    run("""
old = cycle()
seen = weakref.ref(old)
kept = [[number] for number in range(10_000)]
del old
gc.collect(1)
assert seen() is not None, "it has survived too often"
traffic.connections_accepted = CONNECTIONS - 1
garbage._check()
assert seen() is not None, "too few have come"
traffic.connections_accepted = CONNECTIONS
garbage._check()
assert seen() is None
""")


def test_collection_after_many_connections_skips_long_lived_objects() -> None:
    run("""
kept = [[number] for number in range(500_000)]
gc.callbacks.append(note)
traffic.connections_accepted = CONNECTIONS
garbage._check()
assert max(looked_at) < 30_000, max(looked_at)
""")


def test_idle_process_with_grown_memory_collects_and_releases_it() -> None:
    """The C library is also asked to release free pages, if it supports that."""
    run("""
import threading
from odradek.app.serve import garbage as module
def look():
    garbage._check()
    for thread in threading.enumerate():
        if thread is not threading.current_thread():
            thread.join()
old = cycle()
seen = weakref.ref(old)
kept = [[number] for number in range(10_000)]
del old
given_back = []
module.trim_heap = lambda trim_heap=module.trim_heap: given_back.append(trim_heap())
garbage._resident = module.resident_bytes() - 2 * module.GROWN_BYTES
traffic.bytes_in = 1
look()
assert seen() is not None and not given_back, "somebody has asked something"
look()
assert seen() is None and given_back
look()
assert len(given_back) == 1, "no more has come since"
""")
