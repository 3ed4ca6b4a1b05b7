"""Server-side assignors (KIP-848) by their Kafka names, as pure functions."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from odradek.base.uuids import Uuid
from odradek.core.groups.assignors import range as by_range
from odradek.core.groups.assignors import uniform
from odradek.core.groups.assignors.spec import Assignment, MemberSpec

# Assigns from the members by id and the partition count of every subscribed topic.
Assignor = Callable[[Mapping[str, MemberSpec], Mapping[Uuid, int]], dict[str, Assignment]]

ASSIGNORS: dict[str, Assignor] = {"uniform": uniform.assign, "range": by_range.assign}

# Kafka's own assignors are configured by name, or by class name in older configurations.
CLASSES = {
    "org.apache.kafka.coordinator.group.assignor.UniformAssignor": "uniform",
    "org.apache.kafka.coordinator.group.assignor.RangeAssignor": "range",
}
