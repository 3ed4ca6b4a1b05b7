"""Virtual time: the order of events, and nodes that are paused, killed or have their clocks set."""

from __future__ import annotations

from random import Random

from sim.simclock import MILLISECOND_US, SECOND_US, SimClock, SimNode


def a_node() -> tuple[SimClock, SimNode, list[str]]:
    clock = SimClock()
    return clock, SimNode(clock, "node", Random(0)), []


def test_events_run_in_order_of_time_and_scheduling() -> None:
    clock, happened = SimClock(), list[tuple[str, int]]()
    for name, time_us in (("c", 30), ("a", 10), ("d", 30), ("b", 20)):
        clock.at(time_us, lambda name=name: happened.append((name, clock.now_us)))  # type: ignore[misc]
    clock.at(20, lambda: happened.append(("never", 0))).cancel()
    clock.run_until(25)
    assert (happened, clock.now_us) == ([("a", 10), ("b", 20)], 25)
    clock.run_idle()
    assert happened[2:] == [("c", 30), ("d", 30)]


def test_running_ends_with_its_condition_or_its_time() -> None:
    clock, happened = SimClock(), list[int]()
    for time_us in (10, 20, 30):
        clock.at(time_us, lambda time_us=time_us: happened.append(time_us))  # type: ignore[misc]
    assert clock.run_while(lambda: len(happened) < 2, 100)
    assert clock.now_us == 20
    assert not clock.run_while(lambda: len(happened) < 4, 100)
    assert (happened, clock.now_us) == ([10, 20, 30], 100)


def test_a_paused_node_runs_due_events_later() -> None:
    clock, node, happened = a_node()
    for time_us in (10, 20, 40):
        node.after(time_us, lambda time_us=time_us: happened.append(f"{time_us} at {clock.now_us}"))  # type: ignore[misc]
    clock.run_until(15)
    node.pause()
    clock.run_until(30)
    node.resume()
    clock.run_idle()
    assert happened == ["10 at 10", "20 at 30", "40 at 40"]


def test_events_of_an_ended_process_are_cancelled() -> None:
    clock, node, happened = a_node()
    node.after(10, lambda: happened.append("of the first"))
    node.pause()
    clock.run_until(20)
    node.end_process()
    node.after(10, lambda: happened.append("of the second"))
    clock.run_idle()
    assert happened == ["of the second"]


def test_the_wall_clock_can_be_set_and_the_steady_one_rises() -> None:
    clock, node, _ = a_node()
    before = node.now()
    clock.run_until(SECOND_US)
    node.set_wall(-5_000)
    after = node.now()
    assert (after.wall - before.wall, after.steady - before.steady) == (-4_000, 1_000)
    node.lose_power()
    clock.run_until(SECOND_US + 7 * MILLISECOND_US)
    node.boot()
    assert node.now().steady == before.steady
