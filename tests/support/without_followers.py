"""For a partition of a test that makes one by itself: it has no followers, so that nobody is asked for an ISR."""

from odradek.base.units import BrokerId
from odradek.core.alter_partition import AlterPartitionManager
from odradek.core.cluster import ClusterView
from odradek.core.timers import Timers

MANAGER = AlterPartitionManager(
    BrokerId(1), ClusterView("alone"), 30_000, Timers(), lambda name, now: None, sync=lambda name: None
)
