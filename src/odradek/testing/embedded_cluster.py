"""The cluster that a test holds: several brokers that elect a controller.  docs/TESTING.md has the examples."""

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

Named = Member | int | Shared  # A broker, itself or its id, or the tree.


class Cluster(ClusterLife):
    """Brokers 1, 2, 3 and so on in this process, each on a thread of its own; for `with`, or `async with`.

    All have the same configuration, which is given as to Broker.  Their data lies in a folder for each, below a
    `directory` that is kept, or a temporary one; the metadata they share is beside them.  While a
    broker is down, nobody leads the partitions that have no other replica.

    Methods block, and may be called from any thread.  If a broker comes to an end by a failure of its own, the next
    method that is called raises BrokerFailed, and the end of the `with` does.
    """

    # The controller.

    @property
    def controller(self) -> Member:
        """The broker that is the controller.  Waits until there is one, and every running broker knows it."""
        with self._session() as tree:
            return self._agreement.controller(tree)

    def move_controller(self) -> Member:
        """Has another broker become the controller, and returns it.

        As is done with Apache Kafka under ZooKeeper, /controller is deleted: whoever is first to see that becomes the
        controller.  If it is the same broker again, it is deleted again.
        """
        with self._session() as tree:
            before = self._agreement.controller(tree)
            if len(self._agreement.registered()) < 2:
                raise RuntimeError("there is no other broker that could be the controller")
            elections.until_another(tree, before.id, self.check)
            return self._agreement.controller(tree)

    # Partitions.

    def partition(self, *sides: Named | Collection[Named], one_way: bool = False) -> Partition:
        """Cuts brokers off from each other, and from the metadata tree, until it is healed; returns what heals it.

        Who is on different sides can't reach each other, as in a network that drops packets: connections stay, to
        connect takes until healed, and requests get no answer.  A side is a broker, or several, and may have `tree`
        with it.  One side alone is cut off from all other brokers and from the tree.  Who is on no side reaches all.

        One way: what the first side sends does not reach the others, while what they send reaches it.  Who can't
        speak with the tree both ways has lost it.

        Who is cut off from the tree is registered until `zookeeper.session.timeout.ms` is over.  Clients reach every
        broker.  Raises ValueError.
        """
        found = [frozenset(map(_node, _members(side))) for side in sides]
        return self._network.add(cuts_between(found, self._network.nodes, one_way=one_way), self._healed)

    def slow(self, *sides: Member | int | Collection[Member | int], seconds: float, one_way: bool = False) -> Partition:
        """Slows the network between brokers, until it is healed; returns what heals it.

        What brokers on different sides send to each other arrives so many seconds later, in its order: a request has
        its answer twice as much later.  One side alone is slow to all other brokers.  One way: only what the first side
        sends is slow.  Connections begun meanwhile take both ways.  Clients and the tree are not slowed.  Raises
        ValueError.
        """
        if not seconds > 0:
            raise ValueError(f"a slow network takes some time, not {seconds} s")
        found = [frozenset(map(_node, _members(side))) for side in sides]
        brokers = self._network.nodes - {Shared.TREE}
        ways = cuts_between(found, brokers, one_way=one_way)
        return self._network.add(NO_CUTS, self._healed, dict.fromkeys(ways, seconds))

    @property
    def tree(self) -> Shared:
        """The metadata tree that brokers share, for a side of `partition`: who loses it has lost ZooKeeper."""
        return Shared.TREE

    def heal(self) -> None:
        """Ends all partitions, and makes all of the network fast again.

        Returns when every running broker is registered and knows of all, and of a leader for what they hold.
        """
        self._network.clear()
        self._healed()

    def _healed(self) -> None:
        with self._session() as tree:
            self._agreement.heal(tree)

    # Replicas.

    def move_leader(self, topic: str, partition: int, to: Member | int) -> None:
        """Has another of its replicas lead a partition; returns when every running broker knows.

        The broker becomes the preferred one of its replicas, and is elected as such as soon as it is in sync: what
        kafka-reassign-partitions with another order of the same brokers, and kafka-leader-election, do with Apache
        Kafka.  The order is changed in the tree, which a controller reads when it is elected, so another one is.

        Raises ValueError if that broker has no replica or does not run.
        """
        broker = self[to.id if isinstance(to, Member) else to]
        name = TopicPartition(TopicName(topic), partition)
        with self._session() as tree:
            replicas = elections.replicas(tree, name)
            if broker.id not in replicas or not broker.is_running:
                raise ValueError(f"broker {broker.id} can't lead {topic}-{partition}, whose replicas are {replicas}")
            self._agreement.wait(
                lambda: self._agreement.know(tree, are_in_sync({broker.id}, name)), f"broker {broker.id} is not in sync"
            )
            if replicas[0] != broker.id:
                elections.prefer(tree, name, broker.id)
                self.move_controller()

            def leads() -> bool:
                elections.elect_preferred(tree, name)  # Again, if it was not in sync for a moment.
                return self._agreement.know(tree, is_led_by(broker.id, name))

            self._agreement.wait(leads, f"broker {broker.id} does not lead")

    @contextmanager
    def away(self, broker: Member | int, *, kill: bool = False) -> Iterator[Member]:
        """Takes a broker away for a `with`, stopped or killed, and brings it back.

        At the end, also after an error, it is started; without one all replicas are in sync then.
        """
        member = self[broker.id if isinstance(broker, Member) else broker]
        (member.kill if kill else member.stop)()
        try:
            yield member
        finally:
            member.start()
        self.await_in_sync()

    def await_in_sync(self) -> None:
        """Waits until each partition has all of its replicas on running brokers in sync."""
        with self._session() as tree:
            self._agreement.settle(tree)
            running = self._agreement.registered()
            self._agreement.wait(lambda: self._agreement.know(tree, are_in_sync(running)), "not all is in sync")

    # Topics.

    def create_topic(self, name: str, partitions: int | None = None, configs: Mapping[str, Value] = NO_CONFIGS) -> None:
        """Creates a topic, on the brokers that run; `partitions` None is `num.partitions`.

        Returns when every running broker knows it.  Raises Refused, with the error code that a client would get.
        """
        self._settle()  # A partition that is given to a broker that has just been killed is not made before it is back.
        creation = partial(Member.create_topic, name=name, partitions=partitions, configs=configs)
        controller = self._ask_controller(creation)
        made = controller.ask(lambda view: topic_named(view, name))
        if made is not None:  # Nobody has deleted it yet.
            self._wait(partial(has_topic, made), f"not every broker knows topic {name}")

    def delete_topic(self, name: str) -> None:
        """Deletes a topic; no running broker knows it any more.  Raises Refused.

        A broker that is down deletes its partitions when it is back; until then no topic of that name can be created.
        """
        gone = self.controller.ask(lambda view: topic_named(view, name))
        self._ask_controller(partial(Member.delete_topic, name=name))
        if gone is not None:
            self._wait(partial(lacks_topic, gone), f"not every broker has dropped topic {name}")
        with self._session() as tree:
            if len(self._agreement.told(tree)) == self._count:
                self._agreement.wait(partial(elections.is_free, tree, name), f"topic {name} is still being deleted")

    def topics(self) -> list[str]:
        return self.controller.topics()

    def _ask_controller(self, ask: Callable[[Member], None]) -> Member:
        """Returns the controller that was asked."""
        while True:
            controller = self.controller
            try:
                ask(controller)
            except Refused as refused:
                if refused.code != ErrorCode.NOT_CONTROLLER:
                    raise
            else:
                return controller


def _members(side: Named | Collection[Named]) -> Collection[Named]:
    return (side,) if isinstance(side, Member | int | Shared) else side


def _node(named: Named) -> Node:
    return named.id if isinstance(named, Member) else named if isinstance(named, Shared) else BrokerId(named)
