"""Offsets of several groups, written one after the other."""

from __future__ import annotations

from typing import cast

import pytest

from odradek.app.cli.offset_rules import Offsets
from odradek.app.commands import group_reset
from odradek.base.errors import ErrorCode
from odradek.base.units import TopicName, TopicPartition
from odradek.client.cluster.cluster import Cluster
from odradek.client.connection.client_errors import response_error

NO_CLUSTER = cast(Cluster, None)  # No confirmation is requested.


def test_groups_reset_before_a_failure_are_listed(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def commit(cluster: Cluster, group: str, offsets: Offsets) -> None:
        if group == "refused":
            raise response_error(ErrorCode.UNKNOWN_MEMBER_ID, f"group {group}")

    monkeypatch.setattr(group_reset, "commit_offsets", commit)
    offsets = {TopicPartition(TopicName("t"), 0): 7}
    with pytest.raises(group_reset.CommandFailed, match="members have joined group refused"):
        group_reset.write_all(NO_CLUSTER, {"a": offsets, "b": offsets, "refused": offsets, "c": offsets})
    assert capsys.readouterr().err == "odradek: completed before the failure: a, b\n"
    with pytest.raises(group_reset.CommandFailed):
        group_reset.write_all(NO_CLUSTER, {"refused": offsets, "c": offsets})
    assert capsys.readouterr().err == ""
