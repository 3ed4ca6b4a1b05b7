"""The cluster of a test: several brokers that elect a controller; docs/TESTING.md contains examples."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from functools import partial

from odradek.base.errors import ErrorCode, Refused
from odradek.base.units import BrokerId, TopicName, TopicPartition
from odradek.testing import tree_access as elections
from odradek.testing.cluster_life import ClusterLife
from odradek.testing.configuration import NO_CONFIGS, Value
from odradek.testing.embedded_member import Member, are_in_sync, has_topic, is_led_by, lacks_topic, topic_named
from odradek.testing.network import NO_CUTS, Node, Partition, Shared, cuts_between

Named = Member | int | Shared  # A broker, its id, or the tree.


class Cluster(ClusterLife):
    """Brokers 1, 2, 3 and so on in this process, each on its own thread, for `with` or `async with`.

    All brokers have the same configuration, given as for Broker. Each has its own data folder in a `directory`, which
    is kept, or in a temporary one. The shared metadata is in the same directory. While a broker is down, partitions
    without another replica have no leader.

    Methods block and may be called from any thread. If a broker fails, the next method call raises BrokerFailed, and so
    does the end of the `with` block.
    """

    # The controller.

    @property
    def controller(self) -> Member:
        """Return the controller, after waiting until there is one and every running broker knows it."""
        with self._session() as tree:
            return self._agreement.controller(tree)

    def move_controller(self) -> Member:
        """Make a different broker the controller and return it.

        As with Apache Kafka under ZooKeeper, this deletes /controller, and the first broker to notice becomes the
        controller. If this is the same broker again, /controller is deleted again.
        """
        with self._session() as tree:
            before = self._agreement.controller(tree)
            if len(self._agreement.registered()) < 2:
                raise RuntimeError("no other broker is running that could become the controller")
            elections.elect_another(tree, before.id, self.check)
            return self._agreement.controller(tree)

    # Partitions.

    def partition(self, *sides: Named | Collection[Named], one_way: bool = False) -> Partition:
        """Partition brokers from each other and the metadata tree until the returned partition is healed.

        Brokers on different sides can't reach each other, as in a network that drops packets: connections stay open,
        new connections wait until the partition heals, and requests get no answer. A side is a broker or several,
        optionally with `tree`. A single side is isolated from all other brokers and from the tree. Brokers on no side
        reach all others.

        With one_way, data of the first side does not reach the others, but their data reaches the first side. A broker
        without two-way access to the tree has lost it.

        A broker without the tree stays registered until `zookeeper.session.timeout.ms` expires. Clients reach every
        broker. Raise ValueError for unknown brokers or invalid sides.
        """
        found = [frozenset(map(_node, _members(side))) for side in sides]
        return self._network.add(cuts_between(found, self._network.nodes, one_way=one_way), self._healed)

    def slow(self, *sides: Member | int | Collection[Member | int], seconds: float, one_way: bool = False) -> Partition:
        """Slow down the network between brokers; return the slowdown, which can be healed.

        Data between brokers on different sides arrives the given seconds later, in order; an answer takes twice the
        delay. A single side is slow to all other brokers. With one_way, only data of the first side is delayed.
        Establishing a new connection takes both delays. Clients and the tree are not slowed. Raise ValueError for
        unknown brokers or invalid sides.
        """
        if not seconds > 0:
            raise ValueError(f"the delay of a slow network must be positive, not {seconds} s")
        found = [frozenset(map(_node, _members(side))) for side in sides]
        brokers = self._network.nodes - {Shared.TREE}
        cuts = cuts_between(found, brokers, one_way=one_way)
        return self._network.add(NO_CUTS, self._healed, dict.fromkeys(cuts, seconds))

    @property
    def tree(self) -> Shared:
        """Return the metadata tree as a side of `partition`: a broker isolated from it has lost ZooKeeper."""
        return Shared.TREE

    def heal(self) -> None:
        """End all partitions and slowdowns.

        Return when every running broker is registered and knows all brokers and the leaders of their partitions.
        """
        self._network.clear()
        self._healed()

    def _healed(self) -> None:
        with self._session() as tree:
            self._agreement.heal(tree)

    # Replicas.

    def move_leader(self, topic: str, partition: int, to: Member | int) -> None:
        """Make a different replica the leader of a partition, and return when every running broker knows.

        The broker becomes the preferred replica and is elected as soon as it is in sync. With Apache Kafka,
        kafka-reassign-partitions with a different replica order and kafka-leader-election have this effect. The order
        is changed in the tree, which a controller reads only when it is elected, so a different controller is elected.

        Raise ValueError if the broker has no replica or does not run.
        """
        broker = self[to.id if isinstance(to, Member) else to]
        name = TopicPartition(TopicName(topic), partition)
        with self._session() as tree:
            replicas = elections.replicas(tree, name)
            if broker.id not in replicas or not broker.is_running:
                raise ValueError(f"broker {broker.id} cannot lead {topic}-{partition}: its replicas are {replicas}")
            self._agreement.wait(
                lambda: self._agreement.know(tree, are_in_sync({broker.id}, name)),
                f"broker {broker.id} did not join the ISR",
            )
            if replicas[0] != broker.id:
                elections.prefer(tree, name, broker.id)
                self.move_controller()

            def leads() -> bool:
                elections.elect_preferred(tree, name)  # Repeated in case the broker was briefly out of sync.
                return self._agreement.know(tree, is_led_by(broker.id, name))

            self._agreement.wait(leads, f"broker {broker.id} did not become the leader")

    @contextmanager
    def away(self, broker: Member | int, *, kill: bool = False) -> Iterator[Member]:
        """Stop or kill a broker for the duration of a `with` block, then restart it.

        The restart also happens after an error. Without an error, all replicas are in sync afterwards.
        """
        member = self[broker.id if isinstance(broker, Member) else broker]
        (member.kill if kill else member.stop)()
        try:
            yield member
        finally:
            member.start()
        self.await_in_sync()

    def await_in_sync(self) -> None:
        """Wait until all replicas on running brokers are in sync."""
        with self._session() as tree:
            self._agreement.settle(tree)
            running = self._agreement.registered()
            self._agreement.wait(
                lambda: self._agreement.know(tree, are_in_sync(running)), "not all replicas joined the ISR"
            )

    # Topics.

    def create_topic(self, name: str, partitions: int | None = None, configs: Mapping[str, Value] = NO_CONFIGS) -> None:
        """Create a topic on the running brokers; `partitions` defaults to `num.partitions`.

        Return when every running broker knows it. Raise Refused with the error code that a client would get.
        """
        # A partition assigned to a broker that was just killed is not created before the broker returns.
        self._settle()
        creation = partial(Member.create_topic, name=name, partitions=partitions, configs=configs)
        controller = self._call_controller(creation)
        created = controller.query_view(lambda view: topic_named(view, name))
        if created is not None:  # It has not been deleted in the meantime.
            self._wait(partial(has_topic, created), f"not all brokers learned of topic {name}")

    def delete_topic(self, name: str) -> None:
        """Delete a topic and wait until no running broker knows it, or raise Refused.

        A stopped broker deletes its partitions after its restart; until then, no topic of that name can be created.
        """
        topic = self.controller.query_view(lambda view: topic_named(view, name))
        self._call_controller(partial(Member.delete_topic, name=name))
        if topic is not None:
            self._wait(partial(lacks_topic, topic), f"not all brokers deleted topic {name}")
        with self._session() as tree:
            if len(self._agreement.reachable_by_controller(tree)) == self._count:
                self._agreement.wait(partial(elections.is_free, tree, name), f"topic {name} was not deleted")

    def topics(self) -> list[str]:
        return self.controller.topics()

    def _call_controller(self, send: Callable[[Member], None]) -> Member:
        """Send a request to the controller, retry if it moved, and return the controller that handled it."""
        while True:
            controller = self.controller
            try:
                send(controller)
            except Refused as refused:
                if refused.code != ErrorCode.NOT_CONTROLLER:
                    raise
            else:
                return controller


def _members(side: Named | Collection[Named]) -> Collection[Named]:
    return (side,) if isinstance(side, Member | int | Shared) else side


def _node(named: Named) -> Node:
    return named.id if isinstance(named, Member) else named if isinstance(named, Shared) else BrokerId(named)
