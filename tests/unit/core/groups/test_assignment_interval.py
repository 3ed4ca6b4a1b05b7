"""Changes of a consumer group's assignment interval at run time."""

from __future__ import annotations

from pathlib import Path

from odradek.wire.messages.incremental_alter_configs import IncrementalAlterConfigsResponse
from support.configuring import BROKER, SET, alter
from support.consumer_group import Consumers


def test_altered_assignment_interval_applies_immediately(tmp_path: Path) -> None:
    consumers = Consumers(tmp_path, group_consumer_assignment_interval_ms="60000")
    consumers.create("t", 4)
    consumers.join("a", "t")
    consumers.join("b", "t")
    assert consumers.describe().assignment_epoch < consumers.describe().group_epoch, "b waits for its share"
    edit = ("group.consumer.assignment.interval.ms", SET, "0")
    consumers.request(alter((BROKER, "", [edit])), 1, IncrementalAlterConfigsResponse)
    consumers.beat("a", 2)
    assert consumers.describe().assignment_epoch == consumers.describe().group_epoch
