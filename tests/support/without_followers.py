"""The ISR manager of a partition that a test creates directly: it has no followers, so no ISR change is requested."""

from odradek.base.units import BrokerId
from odradek.core.kernel.cluster_view import ClusterView
from odradek.core.kernel.timers import Timers
from odradek.core.partition.alter_partition_manager import AlterPartitionManager

MANAGER = AlterPartitionManager(
    BrokerId(1), ClusterView("alone"), 30_000, Timers(), lambda name, now: None, sync=lambda name: None
)
