"""AlterConfigs, IncrementalAlterConfigs and ListConfigResources: every operation on every kind of key and resource.

Each scenario waits for its changes and describes them; at its end, all are reverted.
"""

from __future__ import annotations

from collections.abc import Iterator

from differential.base import APPEND, BASE, DELETE, SET, SUBTRACT, Edit, alter, configs, replace, resources, topic
from differential.steps import BORDERLINE, VALID, WRONG, Scenario, Step, request_step
from differential.waits import ConfigIs, Wait

TOPIC, BROKER = 2, 4
POLICY, LAG = "cleanup.policy", "log.cleaner.delete.retention.ms"
SECONDS_UNANSWERED = 3
Part = Step | Wait


def scenarios() -> list[Scenario]:
    made = []
    for version in range(2):
        name = f"IncrementalAlterConfigs v{version}"
        made += [
            Scenario(f"{name} asked", list(_described(version))),
            Scenario(f"{name} a topic", list(_topic(version)), [topic(f"altered-{version}")]),
            Scenario(f"{name} brokers", list(_brokers(version))),
        ]
    for version in range(3):
        name = f"AlterConfigs v{version}"
        made.append(Scenario(f"{name} a topic", list(_replaced(version)), [topic(f"replaced-{version}")]))
    return [*made, *(Scenario(f"ListConfigResources v{version}", list(_listed(version))) for version in range(2))]


BAD_EDITS: dict[str, list[Edit]] = {
    "no number": [("retention.ms", SET, "soon")],
    "out of range": [("segment.bytes", SET, "1")],
    "no choice": [("compression.type", SET, "rar")],
    "no element": [(POLICY, APPEND, "burn")],
    "an empty element": [(POLICY, APPEND, "")],
    "no value": [("retention.ms", SET, None)],
    "no values": [("retention.ms", SET, None), ("segment.ms", APPEND, None)],
    "unknown": [("no.such", SET, "1")],
    "unknown list": [("no.such", APPEND, "1")],
    "a broker's": [("num.partitions", SET, "1")],
    "append to a number": [("retention.ms", APPEND, "1")],
    "subtract from a number": [("retention.ms", SUBTRACT, "1")],
    "no operation": [("retention.ms", 4, "1")],
    "twice": [("retention.ms", SET, "1"), ("retention.ms", SET, "2")],
    "twice, once deleted": [("retention.ms", SET, "1"), ("retention.ms", DELETE, None)],
    "contradiction": [("min.compaction.lag.ms", SET, "9"), ("max.compaction.lag.ms", SET, "5")],
    "remote": [("remote.storage.enable", SET, "true")],
    "one is bad": [("segment.ms", SET, "9000"), ("retention.ms", SET, "soon")],
}
GOOD_EDITS: dict[str, list[Edit]] = {
    "set": [("retention.ms", SET, "-1")],
    "append": [(POLICY, APPEND, "compact")],
    "subtract": [(POLICY, SUBTRACT, "compact")],
    "delete": [("retention.ms", DELETE, None), ("no.such", DELETE, "1")],
    "several": [("retention.ms", SET, "1"), (POLICY, APPEND, "compact"), ("segment.ms", DELETE, "")],
    "every replica": [("leader.replication.throttled.replicas", SET, "*")],
}


def _described(version: int) -> Iterator[Step]:
    for text, edits in GOOD_EDITS.items():
        yield request_step(text, VALID, alter((TOPIC, BASE, edits), dry=True), version)
    for text, edits in BAD_EDITS.items():
        yield request_step(text, WRONG, alter((TOPIC, BASE, edits), dry=True), version)
    good = [("retention.ms", SET, "1")]
    for text, name in {"nowhere": "nowhere", "a bad name": "a/b", "an empty name": ""}.items():
        yield request_step(text, WRONG, alter((TOPIC, name, good)), version)
    yield request_step("nowhere, and badly", WRONG, alter((TOPIC, "nowhere", BAD_EDITS["no number"])), version)
    yield request_step("nothing", BORDERLINE, alter(), version)
    yield request_step("no keys", BORDERLINE, alter((TOPIC, BASE, [])), version)
    twice = alter((TOPIC, BASE, good), (TOPIC, BASE, []), (TOPIC, "nowhere", good))
    yield request_step("a resource twice", WRONG, twice, version)
    for kind in (-1, 0, 1, 3, 5, 64, 127):
        yield request_step(f"resource type {kind}", WRONG, alter((kind, "x", good)), version)


def _topic(version: int) -> Iterator[Part]:
    name, number = f"altered-{version}", 0

    def done(text: str, edits: list[Edit], key: str, value: str | None) -> Iterator[Part]:
        nonlocal number
        number += 1
        yield request_step(text, VALID, alter((TOPIC, name, edits)), version)
        yield ConfigIs(TOPIC, name, key, value)
        yield request_step(f"{text}: described", VALID, configs(4, (TOPIC, name, [key, "retention.ms"])), 4)

    yield from done("set", [("retention.ms", SET, "5000")], "retention.ms", "5000")
    yield from done("appended to the default", [(POLICY, APPEND, "compact")], POLICY, "delete,compact")
    yield from done("appended again", [(POLICY, APPEND, "compact,delete")], POLICY, "delete,compact")
    yield from done("subtracted", [(POLICY, SUBTRACT, "delete")], POLICY, "compact")
    yield from done("all subtracted", [(POLICY, SUBTRACT, "compact")], POLICY, "")
    yield from done("deleted", [(POLICY, DELETE, None)], POLICY, None)
    yield from done("subtracted from the default", [(POLICY, SUBTRACT, "compact")], POLICY, "delete")
    yield from done("set with a bad one elsewhere", [("retention.ms", SET, "6000")], "retention.ms", "6000")
    bad = alter((TOPIC, name, BAD_EDITS["one is bad"]), (TOPIC, "nowhere", []), (TOPIC, name[:-1], []))
    yield request_step("refused", WRONG, bad, version)
    yield request_step("what is left", VALID, configs(4, (TOPIC, name, ["segment.ms", "retention.ms"])), 4)


def _brokers(version: int) -> Iterator[Part]:
    own, all_, value = (BROKER, "1"), (BROKER, ""), "1000"
    key = [LAG]
    yield request_step("all brokers", VALID, alter((*all_, [(LAG, SET, value)])), version)
    yield ConfigIs(*all_, LAG, value)
    yield request_step("all brokers: described", VALID, configs(4, (*all_, key), (*own, key)), 4)
    inherits = configs(4, (TOPIC, BASE, ["delete.retention.ms"]))
    yield request_step("all brokers: a topic", VALID, inherits, 4)
    yield request_step("this broker", VALID, alter((*own, [(LAG, SET, "2000")])), version)
    yield ConfigIs(*own, LAG, "2000")
    yield request_step("this broker: described", VALID, configs(4, (*all_, key), (*own, key)), 4)
    yield request_step("this broker: a topic", VALID, inherits, 4)
    yield request_step("neither", VALID, alter((*own, [(LAG, DELETE, None)]), (*all_, [(LAG, DELETE, None)])), version)
    yield ConfigIs(*own, LAG, None)
    yield request_step("neither: described", VALID, configs(4, (*all_, key), (*own, key)), 4)
    bad: dict[str, tuple[str, Edit]] = {
        "another broker": ("2", (LAG, SET, "1")),
        "no broker's number": ("x", (LAG, SET, "1")),
        "read-only": ("1", ("num.partitions", SET, "2")),
        "read-only for all": ("", ("num.partitions", SET, "2")),
        "no number": ("1", (LAG, SET, "soon")),
        "out of range": ("1", ("log.cleaner.threads", SET, "-1")),
        "append to a number": ("1", (LAG, APPEND, "1")),
        "a store for every listener": ("1", ("ssl.keystore.location", SET, "/x")),
        "a store for every broker": ("", ("ssl.keystore.location", SET, "/x")),
        "a listener's store for every broker": ("", ("listener.name.plaintext.ssl.keystore.location", SET, "/x")),
        "one broker's for all": ("", ("ssl.client.auth", SET, "none")),
        "no retention": ("", ("log.retention.ms", SET, "0")),
        "hours": ("", ("log.retention.hours", SET, "5")),
        "too many threads": ("1", ("num.io.threads", SET, "800")),
        "too few threads": ("1", ("num.io.threads", SET, "1")),
        "a small buffer": ("1", ("log.cleaner.dedupe.buffer.size", SET, "1")),
        "no value": ("1", (LAG, SET, None)),
        "no connections": ("1", ("max.connections.per.ip", SET, "0")),
        "no overrides": ("1", ("max.connections.per.ip.overrides", SET, "127.0.0.1:many")),
    }
    for text, (name, edit) in bad.items():
        yield request_step(text, WRONG, alter((BROKER, name, [edit]), dry=True), version)
    yield request_step("unknown", WRONG, alter((*own, [("no.such", SET, "1")]), dry=True), version)
    contradiction: list[Edit] = [
        ("log.cleaner.min.compaction.lag.ms", SET, "9"),
        ("log.cleaner.max.compaction.lag.ms", SET, "5"),
    ]
    yield request_step("contradiction", WRONG, alter((*all_, contradiction), dry=True), version)
    password: Edit = ("listener.name.plaintext.ssl.keystore.password", SET, "secret")
    yield request_step("a password", WRONG, alter((*own, [password]), dry=True), version)
    yield request_step("read-only, deleted", BORDERLINE, alter((*own, [("num.partitions", DELETE, None)])), version)
    for kind in (8, 16, 32):
        yield request_step(
            f"resource type {kind}", WRONG, alter((kind, "1", [("no.such", SET, "1")]), dry=True), version
        )


def _replaced(version: int) -> Iterator[Part]:
    name = f"replaced-{version}"
    yield request_step(
        "set", VALID, replace((TOPIC, name, [("retention.ms", "5000"), ("segment.ms", "9000")])), version
    )
    yield ConfigIs(TOPIC, name, "retention.ms", "5000")
    yield request_step("replaced", VALID, replace((TOPIC, name, [("segment.ms", "8000")])), version)
    yield ConfigIs(TOPIC, name, "retention.ms", None)
    yield request_step("replaced: described", VALID, configs(4, (TOPIC, name, ["segment.ms", "retention.ms"])), 4)
    yield request_step("asked only", VALID, replace((TOPIC, name, [("segment.ms", "7000")]), dry=True), version)
    bad: dict[str, tuple[int, str, list[tuple[str, str | None]]]] = {
        "no value": (TOPIC, name, [("segment.ms", None)]),
        "twice": (TOPIC, name, [("segment.ms", "1"), ("segment.ms", "2")]),
        "unknown": (TOPIC, name, [("no.such", "1")]),
        "no number": (TOPIC, name, [("segment.ms", "soon")]),
        "nowhere": (TOPIC, "nowhere", [("segment.ms", "1000")]),
        "nowhere, and nothing": (TOPIC, "nowhere", []),
        "a bad name": (TOPIC, "a/b", []),
        "another broker": (BROKER, "2", []),
        "no broker's number": (BROKER, "x", []),
        "read-only": (BROKER, "1", [("num.partitions", "2")]),
        **{f"resource type {kind}": (kind, "x", []) for kind in (-1, 0, 1, 3, 8, 64, 127)},
    }
    for text, resource in bad.items():
        yield request_step(text, WRONG, replace(resource), version)
    yield request_step(
        "several", WRONG, replace(*(bad[text] for text in ("unknown", "nowhere", "another broker"))), version
    )
    twice = request_step("a resource twice", WRONG, replace((TOPIC, name, []), (TOPIC, name, [])), version)
    yield twice._replace(seconds_max=SECONDS_UNANSWERED)
    yield request_step("nothing", BORDERLINE, replace(), version)
    yield request_step("the broker", VALID, replace((BROKER, "1", [(LAG, "1000")])), version)
    yield ConfigIs(BROKER, "1", LAG, "1000")
    yield request_step("the broker, nothing", BORDERLINE, replace((BROKER, "1", [])), version)
    yield ConfigIs(BROKER, "1", LAG, None)
    yield request_step("a topic, nothing", BORDERLINE, replace((TOPIC, name, [])), version)
    yield ConfigIs(TOPIC, name, "segment.ms", None)
    yield request_step("nothing: described", VALID, configs(4, (TOPIC, name, ["segment.ms"]), (BROKER, "1", [LAG])), 4)


def _listed(version: int) -> Iterator[Step]:
    if not version:
        yield request_step("client metrics", VALID, resources(0), 0)
        yield request_step("client metrics again", BORDERLINE, resources(0), 0)
        return
    yield request_step("brokers", VALID, resources(1, 4), 1)
    yield request_step("loggers and brokers", VALID, resources(1, 8, 4, 4), 1)
    yield request_step("groups and metrics", BORDERLINE, resources(1, 16, 32), 1)
    for kinds in ((0,), (1,), (-1,), (99,), (4, 99)):
        yield request_step(f"types {kinds}", WRONG, resources(1, *kinds), 1)
