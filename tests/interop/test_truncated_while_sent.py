"""Truncation of a log, as on a follower whose leader lacks its end, while a slow client still receives that end."""

from __future__ import annotations

from pathlib import Path

import pytest

from odradek.app.serve.broker_startup import RunningBroker
from odradek.base.units import NO_EPOCH, BrokerId, LeaderEpoch, Offset, TopicName, TopicPartition
from odradek.core.replication.follower_log import truncate_log
from support.asking import created, fetch_request, produced
from support.large_requests import BIG, local_broker
from support.raw_client import Closed, RawClient, frame
from support.waiting import until

T = TopicPartition(TopicName("t"), 0)
VERSION = 12
RECORDS = 12


@pytest.mark.parametrize("has_movers", [False, True])
def test_truncation_during_a_send_closes_only_its_connection(tmp_path: Path, has_movers: bool) -> None:
    sent: list[object] = []
    with local_broker(tmp_path / "here", has_movers=has_movers) as broker:
        with RawClient(broker.port) as client, RawClient(broker.port, receive_buffer=4096) as slow:
            created(client, "t")
            for number in range(RECORDS):
                produced(client, "t", b"%d" % number * (BIG // 2))
            slow.send(frame(fetch_request("t", 0), VERSION, 1))
            until(lambda: broker.on_loop(lambda running: running.shell.traffic.bytes_out) > 0)

            def cut(running: RunningBroker) -> int:
                partition = running.shell.broker.partitions[T]
                other = partition.info._replace(leader=BrokerId(99), leader_epoch=LeaderEpoch(1))
                partition.follow(other)
                truncate_log(partition, Offset(1), running.shell.now().wall)
                return partition.log.end_offset

            assert broker.on_loop(cut) == 1
            with pytest.raises(Closed):
                while True:
                    sent.append(slow._read(1 << 16))
        assert broker.on_loop(lambda running: running.shell.broker.partitions[T].is_online)
        assert broker.on_loop(lambda running: running.shell.broker.partitions[T].log.epochs.latest) > NO_EPOCH
    assert len(sent) << 16 < RECORDS * BIG // 2, "what is gone is not sent"
