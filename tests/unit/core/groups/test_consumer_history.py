"""Random histories of clients of both protocols and coordinator crashes: no partition ever has two owners.

A client stops using a revoked partition sooner or later, and uses an assigned one immediately. When the group is stable
all partitions are used evenly, and a restart replays the same state.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from random import Random

import pytest

from odradek.base.uuids import Uuid
from odradek.core.groups.consumer import ConsumerGroup
from odradek.record.internal.consumer_protocol import (
    ConsumerProtocolAssignment,
    ConsumerProtocolSubscription,
    TopicPartition,
    decode_assignment,
    decode_subscription,
    encode_assignment,
    encode_subscription,
)
from odradek.wire.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    TopicPartitions,
)
from odradek.wire.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from odradek.wire.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol, JoinGroupResponse
from odradek.wire.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse, MemberIdentity
from odradek.wire.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment, SyncGroupResponse
from scenario import broker_verbs, consumer_verbs
from scenario.world import World

pytestmark = pytest.mark.slow

GROUP, TOPIC = "g", "t"
OK, REBALANCE, MEMBER_ID_REQUIRED = 0, 27, 79
AGAIN = 14, 15, 16  # The coordinator is loading, or is another broker.
STATIC_SHARE = 0.3


class Client:
    """A client with at most one request in flight; `using` lists the partitions that it reads."""

    def __init__(self, world: World, name: str, instance: str | None) -> None:
        self.world = world
        self.name = name
        self.instance = instance
        self.using: set[int] = set()
        self.is_busy = False

    def act(self) -> None:
        raise NotImplementedError

    def release_revoked(self) -> None:
        """Stop using the revoked partitions."""

    def leave(self) -> None:
        raise NotImplementedError

    def lost_connection(self) -> None:
        self.is_busy = False


class NewClient(Client):
    """A member of the consumer protocol."""

    def __init__(self, world: World, name: str, instance: str | None) -> None:
        super().__init__(world, name, instance)
        self.epoch = 0
        self.assigned: set[int] = set()

    def act(self) -> None:
        if self.is_busy:
            return
        is_joining = self.epoch == 0
        assert not (is_joining and self.using)
        topic_id = self.world.harness.broker.view.topics[TOPIC].id  # type: ignore[index]
        owned = [TopicPartitions(topic_id=topic_id, partitions=sorted(self.using))] if self.using else []
        request = ConsumerGroupHeartbeatRequest(
            group_id=GROUP,
            member_id=self.name,
            member_epoch=self.epoch,
            instance_id=self.instance,
            rebalance_timeout_ms=600_000 if is_joining else -1,
            subscribed_topic_names=[TOPIC] if is_joining else None,
            topic_partitions=owned,
        )
        self.is_busy = True
        self.world.send(self.name, request, 1, ConsumerGroupHeartbeatResponse, self._on_response)

    def _on_response(self, answer: ConsumerGroupHeartbeatResponse) -> None:
        self.is_busy = False
        if answer.error_code in AGAIN:
            return
        if answer.error_code:
            self.epoch, self.using, self.assigned = 0, set(), set()
            return
        self.epoch = answer.member_epoch
        if answer.assignment is not None:
            names = self.world.harness.broker.view.names
            assert all(names[Uuid(one.topic_id)] == TOPIC for one in answer.assignment.topic_partitions)
            self.assigned = {index for one in answer.assignment.topic_partitions for index in one.partitions}
            self.using |= self.assigned

    def release_revoked(self) -> None:
        self.using &= self.assigned

    def leave(self) -> None:
        self.using = set()
        if self.epoch:
            epoch = -1 if self.instance is None else -2
            request = ConsumerGroupHeartbeatRequest(
                group_id=GROUP, member_id=self.name, member_epoch=epoch, instance_id=self.instance
            )
            self.world.send(self.name, request, 1, ConsumerGroupHeartbeatResponse, lambda _: None)


class ClassicClient(Client):
    """An eager classic member: it stops using everything before it rejoins. The leader assigns round-robin."""

    def __init__(self, world: World, name: str, instance: str | None) -> None:
        super().__init__(world, name, instance)
        self.member_id = ""
        self.generation = -1

    def act(self) -> None:
        if self.is_busy:
            return
        if self.generation < 0:
            self._join()
            return
        request = HeartbeatRequest(
            group_id=GROUP,
            generation_id=self.generation,
            member_id=self.member_id,
            group_instance_id=self.instance,
        )
        self.is_busy = True
        self.world.send(self.name, request, 4, HeartbeatResponse, lambda answer: self._is_fine(answer.error_code))

    def _is_fine(self, code: int) -> bool:
        self.is_busy = False
        if code in AGAIN:
            return False
        if code:
            self.using = set()
            self.generation = -1
            if code not in (REBALANCE, MEMBER_ID_REQUIRED):
                self.member_id = ""
        return code == OK

    def _join(self) -> None:
        self.using = set()
        subscription = encode_subscription(ConsumerProtocolSubscription(topics=[TOPIC]), 1)
        request = JoinGroupRequest(
            group_id=GROUP,
            session_timeout_ms=30_000,
            rebalance_timeout_ms=60_000,
            member_id=self.member_id,
            group_instance_id=self.instance,
            protocol_type="consumer",
            protocols=[JoinGroupRequestProtocol(name="range", metadata=subscription)],
        )
        self.is_busy = True
        self.world.send(self.name, request, 9, JoinGroupResponse, self._joined)

    def _joined(self, answer: JoinGroupResponse) -> None:
        fine = self._is_fine(answer.error_code)
        if fine or answer.error_code == MEMBER_ID_REQUIRED:
            self.member_id = answer.member_id
        if not fine:
            return
        self.generation = answer.generation_id
        leads = answer.leader == self.member_id and not answer.skip_assignment
        request = SyncGroupRequest(
            group_id=GROUP,
            generation_id=self.generation,
            member_id=self.member_id,
            group_instance_id=self.instance,
            protocol_type="consumer",
            protocol_name="range",
            assignments=self._assign(answer) if leads else [],
        )
        self.is_busy = True
        self.world.send(self.name, request, 5, SyncGroupResponse, self._synced)

    def _assign(self, answer: JoinGroupResponse) -> list[SyncGroupRequestAssignment]:
        assert all(decode_subscription(bytes(member.metadata)).topics == [TOPIC] for member in answer.members)
        count = len(self.world.harness.broker.view.topics[TOPIC].partitions)  # type: ignore[index]
        shares: list[list[int]] = [[] for _ in answer.members]
        for index in range(count):
            shares[index % len(shares)].append(index)
        return [
            SyncGroupRequestAssignment(member_id=member.member_id, assignment=_encoded(share))
            for member, share in zip(answer.members, shares, strict=True)
        ]

    def _synced(self, answer: SyncGroupResponse) -> None:
        if self._is_fine(answer.error_code) and answer.assignment:
            assigned = decode_assignment(bytes(answer.assignment)).assigned_partitions
            self.using = {index for one in assigned for index in one.partitions}

    def leave(self) -> None:
        self.using = set()
        if self.member_id and self.instance is None:
            request = LeaveGroupRequest(group_id=GROUP, members=[MemberIdentity(member_id=self.member_id)])
            self.world.send(self.name, request, 5, LeaveGroupResponse, lambda _: None)


def _encoded(share: list[int]) -> bytes:
    listed = [TopicPartition(topic=TOPIC, partitions=share)] if share else []
    return encode_assignment(ConsumerProtocolAssignment(assigned_partitions=listed), 1)


class History:
    """A random history from one seed."""

    def __init__(self, directory: Path, seed: int, kinds: tuple[type[Client], ...]) -> None:
        self.random = Random(seed)
        self.world = World(directory)
        settings = ["group.initial.rebalance.delay.ms=0", "group.consumer.assignment.interval.ms=500"]
        broker_verbs.broker(self.world, settings)
        self.partitions = self.random.randint(1, 12)
        broker_verbs.topic(self.world, [TOPIC, f"partitions={self.partitions}"])
        self.kinds = kinds
        self.clients: list[Client] = []
        self.names = 0

    def run(self) -> None:
        for _ in range(60):
            self._happen()
            for client in self.random.sample(self.clients, len(self.clients)):
                if self.random.random() < 0.7:
                    client.release_revoked()
                if self.random.random() < 0.8:
                    client.act()
                self._settle()
            self.world.pass_time(self.random.randint(0, 1500))
            self._check()
        for _ in range(120):  # The sessions of dead members end.
            for client in self.clients:
                client.release_revoked()
                client.act()
                self._settle()
            self.world.pass_time(1000)
            self._check()

    def _happen(self) -> None:
        what = self.random.random()
        if what < 0.2 or not self.clients:
            self._start()
        elif what < 0.3 and len(self.clients) > 1:
            self._stop()
        elif what < 0.35:
            self._kill()
        elif what < 0.38 and self.partitions < 20:
            self.partitions += self.random.randint(1, 3)
            consumer_verbs.grow(self.world, [TOPIC, str(self.partitions)])

    def _start(self) -> None:
        self.names += 1
        instance = f"i{self.names}" if self.random.random() < STATIC_SHARE else None
        self.clients.append(self.random.choice(self.kinds)(self.world, f"c{self.names}", instance))

    def _stop(self) -> None:
        """Let a client leave or die; the next process of a static member may use the other protocol."""
        stopped = self.clients.pop(self.random.randrange(len(self.clients)))
        self.world.hang_up(stopped.name)
        if self.random.random() < 0.7:
            stopped.leave()
            self._settle()
        if stopped.instance is not None and self.random.random() < 0.5:
            self.names += 1
            self.clients.append(self.random.choice(self.kinds)(self.world, f"c{self.names}", stopped.instance))

    def _kill(self) -> None:
        before = self._kept()
        broker_verbs.kill(self.world, [])
        assert self._kept() == before
        for client in self.clients:
            client.lost_connection()

    def _kept(self) -> dict[str, object] | None:
        group = self.world.harness.broker.groups.shards.shard(0).groups.get(GROUP)
        return vars(group.kept) if isinstance(group, ConsumerGroup) else None

    def _settle(self) -> None:
        self.world.settle()
        self.world.take_outcomes()
        self._check()

    def _check(self) -> None:
        used = Counter(partition for client in self.clients for partition in client.using)
        shared = {partition for partition, count in used.items() if count > 1}
        assert not shared, [(client.name, sorted(client.using)) for client in self.clients]


@pytest.mark.share(4)
@pytest.mark.parametrize("seed", range(12))
@pytest.mark.parametrize("kinds", [(NewClient,), (NewClient, ClassicClient)], ids=["consumers", "both"])
def test_partitions_have_one_owner_and_are_all_used(seed: int, kinds: tuple[type[Client], ...], tmp_path: Path) -> None:
    history = History(tmp_path, seed, kinds)
    history.run()
    assert sorted(partition for client in history.clients for partition in client.using) == list(
        range(history.partitions)
    ), [(client.name, type(client).__name__, sorted(client.using)) for client in history.clients]
    loads = [len(client.using) for client in history.clients]
    assert max(loads) - min(loads) <= 1
    assert history.world.harness.broker.groups.group(GROUP).state == "Stable"
