"""Members of the simulated cluster that follow each other: real fetchers, ISRs and requests between them.

Their clients are in simreplicaclients.py; the invariants, and the final checks without faults, are here.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Sequence
from functools import partial
from typing import TypeVar, cast

from odradek.api.cluster.alter_partition_requests import AlterPartitionResult, from_event, to_event
from odradek.base.errors import ErrorCode
from odradek.base.units import SECOND_MS, BrokerId, LeaderEpoch, Offset, TopicName, TopicPartition
from odradek.base.uuids import Uuid
from odradek.coordination import tree_layout as layout
from odradek.core.configs.broker_configs import BrokerConfigs
from odradek.core.controller import events
from odradek.core.controller.broker_request_batch import ControlRequest
from odradek.core.partition.alter_partition_manager import ProposedIsr
from odradek.log.log.log import Log
from odradek.net.channels.channel_requests import RequestBuilder
from odradek.net.cluster.controller_updates import Shell
from odradek.net.cluster.isr_changes import IsrChanges, Then
from odradek.net.cluster.unclean_shutdown import UncleanShutdownWait
from odradek.record.record_batch import iter_batches
from odradek.record.records import decode
from odradek.wire.client_codec import decode_response
from sim.simclock import SimNode
from sim.simcontrolled import DIRECTORY, ControlledCluster, SimControlled
from sim.simcontroller import SESSION_MS, SimMember
from sim.simfetchers import SimFetchers, SimShell, member_tree, void
from sim.simoffline import OfflineReplicas
from sim.simrequestqueues import RequestQueue
from sim.simrequests import Lines, SimServer
from support.in_memory import frame_of

T = TypeVar("T")

LAG_MS_MAX = 1_000

Values = dict[int, bytes]  # By their offsets.


class SimReplicated(SimControlled):
    """A member whose broker follows others, and is followed."""

    cluster: ReplicatedCluster
    may_have_lost = has_lost_power = False
    unclean_wait: UncleanShutdownWait | None = None  # Logs that may lack records, until it is registered.

    def start(self) -> None:
        self.unclean_wait, self.is_certain = None, False
        self.offline_replicas = OfflineReplicas(self)
        self.pending_changes: dict[events.AlterPartitions, Callable[[events.AlterPartitions], None]] = {}
        super().start()
        shell = cast("Shell", SimShell(self))
        self.fetchers = SimFetchers(shell, self)
        self.isr_changes = IsrChanges(
            shell, self.broker, member_tree(self), _now, self._send_to_controller, self._send_to_own_controller
        )
        self.server = self.make_server(shell)

    def make_server(self, shell: Shell) -> SimServer:
        """Create the server of a process; `shell` serves components that send requests."""
        return SimServer(self.broker, self.node, self.cluster.delay_us, self.send_pending_requests)

    def join(self) -> None:
        """Rejoin, and fail all requests that wait for this controller."""
        for event in list(self.pending_changes):
            if event.answer is None:
                event.error = ErrorCode.NOT_CONTROLLER
            self.cluster.altered(event)
        super().join()

    def send_pending_requests(self) -> None:
        """Start the requests of the broker to others."""
        self.offline_replicas.settle()
        self.fetchers.send_due_requests()
        self.isr_changes.send_proposals()

    def stop(self) -> None:
        """Stop as a broker does on request: close its logs, and end its session."""
        assert self.broker.stop(self.node.now()) == []
        SimMember.kill(self)
        self.tree.close()

    def lose_power(self) -> None:
        """Kill the process, and let its disk lose an arbitrary part of the unsynced writes."""
        self.kill()
        self.disk = self.disk.crash(self.cluster.random)
        self.may_have_lost = self.has_lost_power = True

    def lose_log(self, partition: TopicPartition) -> None:
        """Kill the process, and remove a log before it starts again."""
        self.kill()
        self.disk.lose_directory(f"{DIRECTORY}/{partition}")

    def may_register(self) -> bool:
        if not self.is_certain:
            self.unclean_wait = self.unclean_wait or self._new_unclean_wait()
            if not self.unclean_wait.is_over(self.tree, self.node.now().steady / SECOND_MS):
                return False
            self.is_certain, self.may_have_lost = True, False
        return True

    def _new_unclean_wait(self) -> UncleanShutdownWait:
        """Mark logs as doubtful, as app/serve/cluster_joining.py does."""
        replicas = {
            TopicPartition(name, index): topic.topic_id
            for name, topic in self.cluster.topics().items()
            for index, brokers in topic.partitions.items()
            if self.id in brokers
        }
        missing = self.broker.storage.missing_replicas(replicas)
        return UncleanShutdownWait(self.id, replicas if self.may_have_lost else missing, 4 * SESSION_MS, missing)

    def apply_full_disk(self, remembered: dict[TopicPartition, ErrorCode]) -> None:
        self.offline_replicas.update(remembered)

    def take(self, sent: ControlRequest) -> dict[TopicPartition, ErrorCode] | None:
        errors = super().take(sent)
        self.server.settle()
        return errors

    def fail_directory(self, *partitions: TopicPartition) -> None:
        super().fail_directory(*partitions)
        self.server.settle()

    # ISRs, changed by the controller.

    def _send_to_controller(self, controller: BrokerId, proposed: Sequence[ProposedIsr], then: Then) -> None:
        event = to_event(proposed, self.id, self.broker.controlled.broker_epoch)

        def serve(member: SimReplicated, answer: Callable[[events.AlterPartitions], None]) -> None:
            member.pending_changes[event] = answer
            member.put_event(event)

        def ended(answer: events.AlterPartitions | None) -> None:
            failed = AlterPartitionResult(ErrorCode.NETWORK_EXCEPTION)
            then([failed] * len(proposed) if answer is None else self._altered(proposed, event))

        if controller in self.cluster.members:
            self.cluster.lines.send_request(self.id, controller, serve, ended)
        else:
            self.node.soon(partial(then, [AlterPartitionResult(ErrorCode.BROKER_NOT_AVAILABLE)] * len(proposed)))

    def _send_to_own_controller(self, event: events.AlterPartitions, then: Callable[[object], None]) -> None:
        def ended(answer: events.AlterPartitions) -> None:
            self._remember(answer)
            then(answer)

        self.pending_changes[event] = lambda answer: void(self.node.soon(lambda: ended(answer)))
        self.put_event(event)

    def _altered(self, proposed: Sequence[ProposedIsr], event: events.AlterPartitions) -> list[AlterPartitionResult]:
        self._remember(event)
        return from_event(proposed, event)

    def _remember(self, event: events.AlterPartitions) -> None:
        """Record the contents of a response for the checks, as seen by the broker."""
        for partition, answer in (event.answer or {}).items():
            known = self.states.get(partition)
            if answer.state is None or known is None:
                continue
            if answer.state.partition_epoch > known.state.partition_epoch:
                self.states[partition] = known._replace(state=answer.state)

    def wrote_states(self) -> None:
        """Check and record the states just written to the tree, before Kafka 2.7, also with a failed disk."""
        for partition in self.cluster.partitions():
            state, known = self.cluster.state(*partition), self.states.get(partition)
            if state is None or state.leader != self.id:
                continue
            self.cluster.check_follows(partition, state)
            if known is not None and state[:2] == known.state[:2]:
                self.states[partition] = known._replace(state=state)

    # What is in its logs.

    def stored(self, partition: TopicPartition) -> bytes:
        """Return all batches of a replica's log as stored."""
        log = self.broker.partitions[partition].log
        found, offset = b"", log.start_offset
        while offset < log.end_offset:
            records = log.read(offset, 1 << 20, log.end_offset).read()
            offset = Offset(max(batch.next_offset for batch in iter_batches(memoryview(records))))
            found += records
        return found

    def contents(self, partition: TopicPartition) -> Values:
        found: Values = {}
        for batch in iter_batches(memoryview(self.stored(partition))):
            if not batch.is_control:
                found |= {batch.base_offset + number: one.value or b"" for number, one in enumerate(decode(batch))}
        return found


def _epochs_in(log: Log) -> list[tuple[LeaderEpoch, Offset]]:
    """Return the epochs with records: another epoch may be known whose first record a full disk rejected."""
    return [(epoch, start) for epoch, start in log.epochs.entries if start < log.end_offset]


def _now(call: Callable[..., None], *arguments: object) -> None:
    call(*arguments)


class ReplicatedCluster(ControlledCluster):
    """A cluster of such members, the network between them, and the records known to clients."""

    members: dict[BrokerId, SimReplicated]  # type: ignore[assignment]

    def __init__(self, seed: int, brokers: int = 3) -> None:
        super().__init__(seed, brokers)
        self.settings = {
            "replica.lag.time.max.ms": str(LAG_MS_MAX),
            "replica.fetch.wait.max.ms": "300",
            "replica.fetch.backoff.ms": "100",
            "replica.fetch.max.bytes": "100",  # One batch at a time: a returning follower stays behind.
            "min.insync.replicas": str(self.random.choice((1, 1, 2))),
        }
        self.configs = BrokerConfigs.parse(self.settings)
        self.members = {id: SimReplicated(self, id) for id in self.members}
        self.clients = SimNode(self.clock, "clients", self.random)
        self.lines = Lines(self.members, self.clients, self.delay_us)
        self._request_queues: dict[tuple[BrokerId, BrokerId], RequestQueue] = {}
        # By topic id and partition: records that were acknowledged or read.
        self.known: dict[tuple[Uuid, TopicPartition], Values] = {}
        self.unsafe: set[Uuid] = set()  # Topics that allow unclean leaders.

    # Invariants without activity.

    def check_logs(self, member: SimControlled, topics: Container[TopicName]) -> None:
        """Check the logs; a power failure may restore deleted ones, which a full start quarantines."""
        if not isinstance(member, SimReplicated) or not member.has_lost_power:
            super().check_logs(member, topics)

    def check(self) -> None:
        super().check()
        for member in self.members.values():
            assert not (member.is_alive and member.offline_replicas.awaited), (
                f"{member.id} has room for {[*member.offline_replicas.awaited]}"
            )
        marked = self.admin.children(layout.DELETE_TOPICS)
        for name, topic in self.topics().items():
            for index, replicas in topic.partitions.items():
                if name not in marked:
                    self._check_replicas(topic.topic_id, TopicPartition(name, index), replicas)

    def _check_replicas(self, topic_id: Uuid, partition: TopicPartition, replicas: Sequence[BrokerId]) -> None:
        """Check that all available replicas are in sync and equal, and have the records known to clients."""
        state = self.state(*partition)
        if state is None or state.leader not in self.members:
            return
        online = {one for one in replicas if self.members[one].is_alive and partition not in self.members[one].failed}
        assert {*state.isr} == online, f"{partition}: {state}, online {online}"
        leader = self.members[state.leader].broker.partitions[partition]
        values, stored = self.members[state.leader].contents(partition), self.members[state.leader].stored(partition)
        for one in online:
            here = self.members[one].broker.partitions[partition]
            assert self.members[one].stored(partition) == stored, f"{partition} on {one} and {state.leader}"
            assert here.log.end_offset == leader.log.end_offset, f"{partition} on {one}"
            epochs, its = _epochs_in(here.log), _epochs_in(leader.log)
            assert epochs == its, f"{partition} has the epochs {epochs} on {one}, {its} on {state.leader}"
        if len(online) >= min(self.configs.int("min.insync.replicas"), len(replicas)):
            assert leader.positions.high_watermark == leader.log.end_offset, f"{partition} is not committed"
        lost = {at: value for at, value in self.known.get((topic_id, partition), {}).items() if values.get(at) != value}
        assert not lost, f"{partition} on {state.leader} lacks {lost}"

    def request(
        self, sender: BrokerId, receiver: BrokerId, builder: RequestBuilder[T], then: Callable[[T | None], None]
    ) -> None:
        """Send a request to a broker over the network; `then` receives the response, or None."""
        version = builder.latest_allowed
        frame = frame_of(builder.build(version), version, 1, "sim")

        def ended(answer: bytes | None) -> None:
            then(None if answer is None else decode_response(builder.response, version, answer)[1])

        self.lines.send_request(sender, receiver, lambda member, answer: member.server.serve(frame, answer), ended)

    def altered(self, event: events.AlterPartitions) -> None:
        for member in self.members.values():
            answer = member.pending_changes.pop(event, None) if member.is_alive else None
            if answer is not None:
                answer(event)

    def send(self, sender: SimMember, request: ControlRequest) -> None:
        ends = (sender.id, request.broker)
        if ends not in self._request_queues:
            self._request_queues[ends] = RequestQueue(self.lines, sender, self.members[request.broker])
        self._request_queues[ends].send(request)
