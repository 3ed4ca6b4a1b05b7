"""For a partition of a test that makes one by itself: it has no followers, so that nobody is asked for an ISR."""

from odradek.base.units import BrokerId
from odradek.core.kernel.cluster_view import ClusterView
from odradek.core.kernel.timers import Timers
from odradek.core.partition.alter_partition_manager import AlterPartitionManager

MANAGER = AlterPartitionManager(
    BrokerId(1), ClusterView("alone"), 30_000, Timers(), lambda name, now: None, sync=lambda name: None
)
