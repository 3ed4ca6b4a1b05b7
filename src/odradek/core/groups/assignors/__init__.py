"""The assignors of the coordinator (KIP-848), by Kafka's names: pure functions that say who gets which partition."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from odradek.base.uuids import Uuid
from odradek.core.groups.assignors import range as by_range
from odradek.core.groups.assignors import uniform
from odradek.core.groups.assignors.spec import Assignment, MemberSpec

# An assignment from the members by id, and the number of partitions of every topic that one is subscribed to.
Assignor = Callable[[Mapping[str, MemberSpec], Mapping[Uuid, int]], dict[str, Assignment]]

ASSIGNORS: dict[str, Assignor] = {"uniform": uniform.assign, "range": by_range.assign}

# Kafka's own are configured by name, or by the class that older configurations know them by.
CLASSES = {
    "org.apache.kafka.coordinator.group.assignor.UniformAssignor": "uniform",
    "org.apache.kafka.coordinator.group.assignor.RangeAssignor": "range",
}
