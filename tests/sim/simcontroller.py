"""Brokers that take turns as the controller, over one simulated tree: their writes, and the requests to each broker.

A broker consists of its session, its controller, and the state that it was sent, fenced by epochs as in a real broker.
Each step on the tree takes time, and requests arrive later, in the order of their sender: between two of them, other
brokers may act, sessions may expire, and processes may die.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping
from contextlib import suppress
from functools import partial
from random import Random

from odradek.base.errors import ErrorCode
from odradek.base.units import NO_BROKER, BrokerId, TimestampMs, TopicName, TopicPartition
from odradek.base.uuids import ZERO_UUID, Uuid
from odradek.coordination import tree_layout as layout
from odradek.coordination.tree import (
    BadVersion,
    Create,
    Delete,
    NodeExists,
    NoNode,
    SessionExpired,
    SessionState,
    Unavailable,
    ensure_paths,
)
from odradek.core.controller import events
from odradek.core.controller.broker_request_batch import (
    LEADER_DURING_DELETE,
    AssignedState,
    BecomeLeaderOrFollower,
    ControlRequest,
    PartitionMetadata,
    StopReplicas,
    UpdateMetadata,
)
from odradek.core.controller.controller import Controller
from odradek.core.controller.controller_steps import Deposed, Steps, WriteStates
from odradek.core.controller.partition_leader_election import ElectionType
from odradek.core.kernel.cluster_view import BrokerInfo, LeaderAndIsr, TopicAssignment
from odradek.net.controller.controller_tree import ControllerTree
from sim.simclock import MILLISECOND_US, SECOND_US, SimClock, SimNode
from sim.simfound import Found
from sim.simtree import SimTree, SimTreeServer

SESSION_MS = 1_000
BEAT_US = 300 * MILLISECOND_US
SLOWEST_US = 20 * MILLISECOND_US
RETRY_US = 50 * MILLISECOND_US
LOST_ANSWERS = 0.02


class SimMember:
    """One broker as seen by its controllers."""

    def __init__(self, cluster: SimCluster, broker: BrokerId) -> None:
        self.cluster = cluster
        self.id = broker
        self.node = SimNode(cluster.clock, f"broker-{broker}", cluster.random)
        self.is_alive = False
        self.failed: set[TopicPartition] = set()  # Replicas in failed directories.

    @property
    def has_session(self) -> bool:
        """Return True if the broker is registered in a live session."""
        is_open = self.tree.session_id in self.cluster.server.sessions and not self.tree.is_cut_off
        return is_open and self.epoch >= 0

    # Its life.

    def start(self) -> None:
        assert not self.is_alive
        self.is_alive = True
        self.failed.clear()
        self.controller_epoch = 0  # The greatest epoch known to it.
        self.states: dict[TopicPartition, AssignedState] = {}
        self.topic_ids: dict[TopicName, Uuid] = {}
        self.metadata: dict[TopicPartition, PartitionMetadata] = {}
        self.metadata_ids: dict[TopicName, Uuid] = {}
        self.brokers: tuple[BrokerId, ...] = ()
        self.controller = Controller(self.id, new_topic_id=self.cluster.new_topic_id)
        self.join()

    def join(self) -> None:
        """Open a session, and register once the node of the previous session is gone."""
        self.epoch = -1  # Until it is registered.
        self.events: deque[events.Event] = deque()
        self.steps: Steps | None = None
        self.handled: events.Event | None = None
        self.tree: SimTree = self.cluster.server.open(SESSION_MS)
        self.tree.on_session(partial(self._session_is, self.tree))
        self.door = ControllerTree(
            self.tree, self.id, self._now, lambda config: config.get("unclean") == "true", self.put_event
        )
        self._beat(self.tree)
        self._register(self.tree)

    def _now(self) -> TimestampMs:
        return self.node.now().wall

    def _beat(self, tree: SimTree) -> None:
        if tree is self.tree:
            tree.beat()
            self.node.after(BEAT_US, lambda: self._beat(tree))

    def _register(self, tree: SimTree) -> None:
        if tree is not self.tree:
            return
        path = layout.broker(self.id)
        try:
            if not self.may_register():
                self.node.after(100 * MILLISECOND_US, lambda: self._register(tree))
                return
            tree.create(path, layout.encode_broker(BrokerInfo(self.id), self._now()), ephemeral=True)
        except NodeExists:  # The node of its previous session.
            self.node.after(100 * MILLISECOND_US, lambda: self._register(tree))
            return
        except Unavailable:
            self.node.after(RETRY_US, lambda: self._register(tree))
            return
        except SessionExpired:
            return
        stat = tree.exists(path)
        assert stat is not None
        self.epoch = stat.czxid
        self.put_event(events.ControllerChanged())

    def may_register(self) -> bool:
        """Return False while the broker has to wait; raise the errors of the tree."""
        return True

    def _session_is(self, tree: SimTree, state: SessionState) -> None:
        if state is SessionState.EXPIRED:
            self.node.soon(lambda: self._expired(tree))
        elif state is SessionState.CONNECTED:
            self.reconnected()

    def reconnected(self) -> None:
        self.put_event(events.Reconnected())

    def on_unclean_election_enabled(self, name: TopicName) -> None:
        self.put_event(events.UncleanElectionEnabled(name))

    def _expired(self, tree: SimTree) -> None:
        """Rejoin after the session expired, which also ends all work of its controller."""
        if tree is not self.tree:
            return
        if self.steps is not None:
            with suppress(StopIteration):
                self.steps.throw(Deposed())
        assert list(self.controller.handle(events.SessionEnded())) == [] and not self.controller.is_active
        self.join()

    def kill(self) -> None:
        self.is_alive = False
        self.tree.abandon()
        self.node.end_process()

    def fail_directory(self, *partitions: TopicPartition) -> None:
        """Fail a data directory, and notify the controller through the tree."""
        self.failed.update(partitions)
        for partition in partitions:
            self.states.pop(partition, None)
        self.propagate_log_dir_event()

    def propagate_log_dir_event(self) -> None:
        """Make the controller ask through the tree which replicas are available."""
        path = f"{layout.LOG_DIR_EVENTS}/{layout.LOG_DIR_EVENT_PREFIX}"
        self.tree.create(path, layout.encode_log_dir_event(self.id), sequential=True)

    # Its controller, which handles events and steps sequentially.

    def put_event(self, event: events.Event) -> None:
        self.events.append(event)
        if self.steps is None and len(self.events) == 1:
            self.node.after(self.cluster.delay_us(), self._next_event)

    def _next_event(self) -> None:
        if self.steps is None and self.events:
            self.handled = self.events.popleft()
            self.steps = self.controller.handle(self.handled)
            self._continue(self.steps, None)

    def _continue(self, steps: Steps, failed: Deposed | None) -> None:
        try:
            step = next(steps) if failed is None else steps.throw(failed)
        except StopIteration:
            self._ended()
            return
        self.node.after(self.cluster.delay_us(), lambda: self._carry_out(steps, step))

    def _carry_out(self, steps: Steps, step: object) -> None:
        if steps is not self.steps:
            return
        try:
            if self.cluster.random.random() < LOST_ANSWERS and not self.tree.is_cut_off:
                self.door.execute(step)  # type: ignore[arg-type]  # And its answer is lost: it is done again.
                if isinstance(step, WriteStates):
                    self.cluster.wrote(step)
            self.door.execute(step)  # type: ignore[arg-type]
        except Unavailable:
            self.node.after(RETRY_US, lambda: self._carry_out(steps, step))
            return
        except (Deposed, SessionExpired):
            self._step_ended(steps, Deposed())
            return
        if isinstance(step, WriteStates):
            self.cluster.wrote(step)
        self._step_ended(steps, None)

    def _step_ended(self, steps: Steps, failed: Deposed | None) -> None:
        # The response takes a while, too.
        self.node.after(self.cluster.delay_us(), lambda: self._continue(steps, failed) if steps is self.steps else None)

    def _ended(self) -> None:
        handled, self.steps = self.handled, None
        for request in self.controller.take_requests():
            self.cluster.send(self, request)
        if isinstance(handled, events.AlterPartitions):
            self.cluster.altered(handled)
        if self.events:
            self.node.after(self.cluster.delay_us(), self._next_event)

    # What it is told.

    def take(self, sent: ControlRequest) -> dict[TopicPartition, ErrorCode] | None:
        """Apply a controller request; return the failed partitions, or None if the request is refused."""
        is_stale = sent.controller_epoch < self.controller_epoch or sent.broker_epoch < self.epoch
        if is_stale or self.epoch < 0:  # It listens once it is registered.
            return None
        self.controller_epoch = sent.controller_epoch
        match sent.request:
            case BecomeLeaderOrFollower():
                return self._become(sent.request)
            case UpdateMetadata():
                self._update(sent.request)
            case StopReplicas():
                return self._stop(sent.request)
        return {}

    def _become(self, request: BecomeLeaderOrFollower) -> dict[TopicPartition, ErrorCode]:
        errors: dict[TopicPartition, ErrorCode] = {}
        for partition, assigned in request.partitions.items():
            assert self.id in assigned.replicas, "a broker is told of its own replicas"
            assert assigned.state.leader in {NO_BROKER, *self.brokers}, "nobody follows whom he has not heard of"
            topic_id = request.topic_ids[partition.topic]
            # A recreated topic has its own epochs.
            known = self.states.get(partition) if self.topic_ids.get(partition.topic) == topic_id else None
            if partition in self.failed:
                errors[partition] = ErrorCode.KAFKA_STORAGE_ERROR
            elif known is None or known.state.leader_epoch <= assigned.state.leader_epoch:
                assert topic_id != ZERO_UUID, "a topic has its id before anybody hears of it"
                self.states[partition] = assigned
                self.cluster.logs.add((self.id, partition))
                self.topic_ids[partition.topic] = topic_id
            else:
                errors[partition] = ErrorCode.STALE_CONTROLLER_EPOCH
        return errors

    def _stop(self, request: StopReplicas) -> dict[TopicPartition, ErrorCode]:
        for partition in request.partitions:
            if partition not in self.failed:
                self.states.pop(partition, None)
                if request.deletes:
                    self.cluster.logs.discard((self.id, partition))
        return {one: ErrorCode.KAFKA_STORAGE_ERROR for one in request.partitions if one in self.failed}

    def _update(self, request: UpdateMetadata) -> None:
        self.brokers = tuple(sorted(broker.id for broker in request.brokers))
        self._forget_topics(request)
        self.metadata_ids.update(request.topic_ids)
        for partition, info in request.partitions.items():
            if info.state.leader == LEADER_DURING_DELETE:
                self.metadata.pop(partition, None)
            else:
                self.metadata[partition] = info

    def _forget_topics(self, request: UpdateMetadata) -> None:
        """Forget topics that are gone or were recreated.

        Existing topics keep their partitions: a controller that was deposed may have announced one that the
        next controller does not know yet.
        """
        there = {partition.topic for partition in request.partitions}
        for partition in list(self.metadata):
            before, now = self.metadata_ids.get(partition.topic), request.topic_ids.get(partition.topic)
            is_another = partition.topic in there and before != now and ZERO_UUID not in {before, now}
            if is_another or (request.is_full and partition.topic not in there):
                del self.metadata[partition]


class SimCluster:
    """All brokers, the tree between them, and everything ever written to it."""

    def __init__(self, seed: int, brokers: int = 3) -> None:
        self.random = Random(seed)
        self.clock = SimClock()
        self.server = SimTreeServer(self.clock, self.delay_us)
        self.admin = self.server.open()
        layout.ensure_startup_paths(self.admin)
        self.members = {id: SimMember(self, id) for id in map(BrokerId, range(brokers))}
        self.logs: set[tuple[BrokerId, TopicPartition]] = set()  # The logs survive the processes.
        self.written: dict[tuple[Uuid, TopicPartition], LeaderAndIsr] = {}
        self._arrivals: dict[tuple[BrokerId, BrokerId], int] = {}
        self._assignments: dict[bytes, TopicAssignment] = {}  # By what is in the tree.
        self._topics = Found(self.server, self._find_topics)

    def delay_us(self) -> int:
        return self.random.randrange(100, SLOWEST_US if self.random.random() < 0.1 else 2 * MILLISECOND_US)

    def run(self, seconds: float) -> None:
        self.clock.run_until(self.clock.now_us + int(seconds * SECOND_US))

    @property
    def alive(self) -> list[SimMember]:
        return [member for member in self.members.values() if member.is_alive]

    @property
    def controllers(self) -> list[SimMember]:
        """Return the members that believe they are the controller."""
        return [member for member in self.alive if member.controller.is_active]

    # Actions of an administrator, without a broker.

    def new_topic_id(self) -> Uuid:
        return Uuid(self.random.randbytes(16))

    def create_topic(
        self,
        name: str,
        replicas: Iterable[Iterable[int]],
        config: dict[str, str] | None = None,
        *,
        has_id: bool = True,
    ) -> None:
        topic = TopicName(name)
        assigned = {index: tuple(map(BrokerId, brokers)) for index, brokers in enumerate(replicas)}
        assignment = TopicAssignment(assigned, self.new_topic_id() if has_id else ZERO_UUID)
        ensure_paths(self.admin, [layout.config(layout.TOPIC_CONFIGS, topic)])
        self.admin.set(layout.config(layout.TOPIC_CONFIGS, topic), layout.encode_config(config or {}))
        self.admin.multi([Create(layout.topic(topic), layout.encode_topic(assignment))])

    def assignment(self, name: str) -> TopicAssignment:
        data = self.admin.get(layout.topic(TopicName(name)))[0]
        known = self._assignments.get(data)
        if known is None:
            known = self._assignments[data] = layout.decode_topic(data)
        return known

    def grow_topic(self, name: str, replicas: Iterable[int]) -> None:
        before = self.assignment(name)
        partitions = {**before.partitions, len(before.partitions): tuple(map(BrokerId, replicas))}
        self.admin.set(layout.topic(TopicName(name)), layout.encode_topic(before._replace(partitions=partitions)))

    def remove_by_hand(self, name: str) -> None:
        """Delete a topic's znodes directly, as an administrator never should."""
        topic = TopicName(name)
        indexes = [int(index) for index in self.admin.children(layout.partitions(topic))]
        below = [path for one in indexes for path in (layout.partition_state(topic, one), layout.partition(topic, one))]
        self.admin.multi([Delete(path) for path in (*below, layout.partitions(topic), layout.topic(topic))])

    def mark_for_deletion(self, name: str) -> None:
        ensure_paths(self.admin, [layout.delete_topic(TopicName(name))])

    def prefer(self, *partitions: TopicPartition) -> None:
        """Request preferred leaders, as kafka-preferred-replica-election does, unless a request is pending."""
        with suppress(NodeExists):
            self.admin.create(layout.PREFERRED_REPLICA_ELECTION, layout.encode_partitions(partitions))

    def elect_leaders(self, election_type: ElectionType, *partitions: TopicPartition) -> events.ElectLeaders | None:
        """Request elections from a member that believes it is the controller; return None if there is none."""
        if not self.controllers:
            return None
        event = events.ElectLeaders(election_type, partitions)
        self.controllers[0].put_event(event)
        return event

    def rebalance(self) -> None:
        """Let preferred replicas lead again if possible, as the controller's timer does."""
        for member in self.controllers:
            member.put_event(events.RebalanceDue())

    def allow_unclean(self, name: str, *, is_allowed: bool) -> None:
        """Alter a topic's config, which every broker learns of a little later."""
        topic = TopicName(name)
        config = {"unclean": "true"} if is_allowed else {}
        self.admin.set(layout.config(layout.TOPIC_CONFIGS, topic), layout.encode_config(config))
        for member in self.alive if is_allowed else ():
            self.clock.at(self.clock.now_us + self.delay_us(), partial(self._altered, member, member.node.life, topic))

    def _altered(self, member: SimMember, life: int, topic: TopicName) -> None:
        if member.is_alive and member.node.life == life:
            member.on_unclean_election_enabled(topic)

    def write_isr(self, leader: SimMember, partition: TopicPartition, isr: Iterable[BrokerId]) -> None:
        """Let a leader write an ISR itself and announce it, as before Kafka 2.7."""
        known = leader.states[partition].state
        state = known._replace(isr=tuple(isr))
        data = layout.encode_partition_state(
            layout.PartitionState(known.leader, known.leader_epoch, known.controller_epoch, state.isr, known.recovery)
        )
        try:
            stat = leader.tree.set(layout.partition_state(*partition), data, known.partition_epoch)
        except (BadVersion, NoNode, Unavailable):
            return  # It does not know the controller's write yet.
        state = state._replace(partition_epoch=stat.version)
        self.check_follows(partition, state)
        leader.states[partition] = leader.states[partition]._replace(state=state)
        path = f"{layout.ISR_CHANGES}/{layout.ISR_CHANGE_PREFIX}"
        leader.tree.create(path, layout.encode_partitions([partition]), sequential=True)

    def depose(self) -> None:
        """Delete /controller, as an administrator does to force an election."""
        if self.admin.exists(layout.CONTROLLER) is not None:
            self.admin.multi([Delete(layout.CONTROLLER)])

    def topics(self) -> Mapping[TopicName, TopicAssignment]:
        return self._topics.get()

    def partitions(self) -> list[TopicPartition]:
        return [TopicPartition(name, index) for name, topic in self.topics().items() for index in topic.partitions]

    def _find_topics(self) -> Mapping[TopicName, TopicAssignment]:
        return {TopicName(name): self.assignment(name) for name in self.admin.children(layout.TOPICS)}

    def state(self, name: str, index: int) -> LeaderAndIsr | None:
        path = layout.partition_state(TopicName(name), index)
        if self.admin.exists(path) is None:
            return None
        data, stat = self.admin.get(path)
        found = layout.decode_partition_state(data)
        return LeaderAndIsr(
            found.leader, found.leader_epoch, found.isr, found.recovery, found.controller_epoch, stat.version
        )

    # Messages between brokers.

    def send(self, sender: SimMember, request: ControlRequest) -> None:
        """Deliver requests from a sender to a broker in order; those in flight arrive even if the sender has died."""
        way = (sender.id, request.broker)
        self._arrivals[way] = max(self._arrivals.get(way, 0), self.clock.now_us) + self.delay_us()
        life = sender.node.life
        self.clock.at(self._arrivals[way], lambda: self._arrived(sender, life, request))

    def _arrived(self, sender: SimMember, life: int, request: ControlRequest) -> None:
        receiver = self.members[request.broker]
        if not receiver.is_alive:
            return
        errors = receiver.take(request)
        if errors is not None and sender.is_alive and sender.node.life == life:
            sender.put_event(events.Answered(request, errors))

    def propose_isr(self, leader: SimMember, partition: TopicPartition, isr: Iterable[BrokerId]) -> bool:
        """Let a leader request an ISR change from a supposed controller; return False if it cannot."""
        known = leader.states.get(partition)
        if known is None or known.state.leader != leader.id or not self.controllers:
            return False
        proposed = known.state._replace(isr=tuple(isr))
        self.controllers[0].put_event(events.AlterPartitions(leader.id, leader.epoch, {partition: proposed}))
        return True

    def shut_down(self, broker: BrokerId) -> list[TopicPartition] | None:
        """Let a broker request controlled shutdown; return the partitions that it still leads."""
        event = events.ShutDown(broker, self.members[broker].epoch)
        self.controllers[0].put_event(event)
        self.run(1)
        return None if event.answer is None else list(event.answer)

    def altered(self, event: events.AlterPartitions) -> None:
        leader = self.members.get(event.broker)
        if leader is None:
            return  # A test sent the request itself.
        for partition, answer in (event.answer or {}).items():
            known = leader.states.get(partition) if leader.is_alive and leader.epoch == event.broker_epoch else None
            if answer.state is None or known is None:
                continue
            self.check_follows(partition, answer.state)
            if answer.state.partition_epoch > known.state.partition_epoch:
                leader.states[partition] = known._replace(state=answer.state)

    # What holds at any time.

    def wrote(self, step: WriteStates) -> None:
        epoch = layout.decode_controller_epoch(self.admin.get(layout.CONTROLLER_EPOCH)[0])
        for partition, state in step.result.states.items():
            assert state.controller_epoch == epoch, f"{partition}: {state} after another was elected, in epoch {epoch}"
            self.check_follows(partition, state)

    def check_follows(self, partition: TopicPartition, state: LeaderAndIsr) -> None:
        topic = self.topics().get(partition.topic)
        if topic is None:
            return
        key = (topic.topic_id, partition)
        before, self.written[key] = self.written.get(key), state
        replicas = topic.partitions[partition.partition]
        assert state.isr and set(state.isr) <= set(replicas), f"{partition}: {state} of {replicas}"
        assert state.leader in {*state.isr, -1}, f"{partition}: {state}"
        if before is None:
            return
        if state.partition_epoch <= before.partition_epoch:
            self.written[key] = before
            return
        assert state.leader_epoch >= before.leader_epoch, f"{partition}: {before}, then {state}"
        assert state.controller_epoch >= before.controller_epoch, f"{partition}: {before}, then {state}"
        if state.leader != before.leader:
            assert state.leader_epoch > before.leader_epoch, f"{partition}: two leaders in an epoch: {before}, {state}"
            assert state.leader == -1 or state.recovery or state.leader in before.isr, f"{partition}: {before}, {state}"

    # Invariants without activity.

    def may_be_unclean(self, name: TopicName) -> bool:
        config = layout.decode_config(self.admin.get(layout.config(layout.TOPIC_CONFIGS, name))[0])
        return config.get("unclean") == "true"

    def check_preferred(self) -> None:
        """Check, some time after a rebalance, that in-sync preferred replicas lead.

        One partition in ten may have another leader, and no broker here is preferred for that many.
        """
        for name, topic in self.topics().items():
            if name in self.admin.children(layout.DELETE_TOPICS):
                continue
            for index, (preferred, *_) in topic.partitions.items():
                state, partition = self.state(name, index), TopicPartition(name, index)
                member = self.members[preferred]
                if state is not None and member.is_alive and preferred in state.isr and partition not in member.failed:
                    assert state.leader == preferred, f"{partition}: {state}, preferred is {preferred}"

    def check(self) -> None:
        alive = {member.id for member in self.alive}
        holder = [member.id for member in self.controllers]
        assert len(holder) == 1, f"controllers: {holder}"
        assert layout.decode_controller(self.admin.get(layout.CONTROLLER)[0]).broker == holder[0]
        topics = self.topics()
        marked = self.admin.children(layout.DELETE_TOPICS)
        for name in marked:
            topic = topics[TopicName(name)].partitions
            held = {(b, TopicPartition(TopicName(name), index)) for index, some in topic.items() for b in some}
            can_delete = {(b, one) for b, one in held if b in alive and one not in self.members[b].failed}
            assert held != can_delete, f"{name} is still there"
        for name, topic in topics.items():
            assert topic.topic_id != ZERO_UUID, f"{name} has no id"
            for index, replicas in topic.partitions.items():
                if name not in marked:
                    self._check_partition(TopicPartition(name, index), replicas, alive)
        there = set(self.partitions())
        for member in self.alive:
            assert set(member.brokers) == alive, f"{member.id} knows {member.brokers} of {alive}"
            strange = [one for one in member.metadata if one not in there or one.topic in marked]
            assert not strange, f"{member.id} knows {strange}, which are gone"

    def _check_partition(self, partition: TopicPartition, replicas: tuple[BrokerId, ...], alive: set[BrokerId]) -> None:
        state = self.state(*partition)
        online = {one for one in replicas if one in alive and partition not in self.members[one].failed}
        if state is None:
            assert not online, f"{partition} has no state"
            return
        may_lead = online if self.may_be_unclean(partition.topic) else {*state.isr} & online
        assert (state.leader in online) == bool(may_lead), f"{partition}: {state}, online {online}"
        assert {*state.isr} <= online or len(state.isr) == 1, f"{partition}: {state}, online {online}"
        for member in self.alive:
            known = member.metadata.get(partition)
            assert known is not None and known.state == state, f"{member.id}: {known}, not {state}"
            assert set(known.offline) == {*replicas} - online, f"{member.id}: {known}, online {online}"
            if member.id in online:
                role = member.states.get(partition)
                # A leader knows the ISR changes that it wrote itself.
                assert role is not None and role.state[:2] == state[:2], f"{member.id}: {role}, not {state}"
