"""Leader-side checks of the records that a follower fetches again and again without getting any further.

Records are sent unchecked, so a leader does not notice a wrong checksum.  A follower does, refuses the whole answer and
fetches the same offset again; the protocol has no way to report it to the leader or to the controller.  So the leader
reads what that follower is stuck at once itself.  Damage found here makes the replica resign: damaged_replicas.py.
"""

from __future__ import annotations

from odradek.base.errors import Refused
from odradek.base.units import MIB, Offset
from odradek.core.partition.in_sync_replicas import InSyncReplicas
from odradek.core.partition.leadership_state import Leadership
from odradek.log.files.disk import DiskFailed, FileSlice
from odradek.log.files.disk_failures import LogDamaged
from odradek.log.segment.scan import Damaged, FileBatch, walk_checked

CHECKED_BYTES = 1 * MIB  # Kafka's replica.fetch.max.bytes: no follower gets further in one answer by default.


def check_stuck(leading: Leadership, in_sync: InSyncReplicas) -> int:
    """Check what followers outside the ISR are stuck at; return how many places were read.

    Called from time to time.  A follower is stuck if it has fetched nothing new since the last call; each offset is
    checked once for each follower.
    """
    stuck = in_sync.stuck(leading.log.end_offset)
    for offset in stuck:
        if not leading.partition.is_online:
            break
        _check(leading, offset)
    return len(stuck)


def _check(leading: Leadership, offset: Offset) -> None:
    log, partition = leading.log, leading.partition
    try:
        records = log.read(offset, CHECKED_BYTES, log.end_offset)
        _walk(records, log.end_offset)
    except Damaged as damage:
        partition.found_damage(LogDamaged(damage.path, damage.position, damage.why))
    except LogDamaged as damage:
        partition.found_damage(damage)
    except (DiskFailed, Refused):
        return  # The follower's next fetch meets it, too.


def _walk(records: FileSlice, log_end: Offset) -> None:
    """Read all batches.  Raise Damaged for a wrong checksum, and for offsets that are out of order.

    No checksum covers a batch's base offset.  Of two batches that overlap the first is taken for the damaged one: with
    it the log is truncated before both.
    """
    before: FileBatch | None = None
    for place in walk_checked(records.file, records.position, records.position + records.size):
        if before is not None and place.base_offset <= before.last_offset:
            why = f"offsets are not monotonic: {place.base_offset} follows {before.last_offset}"
            raise Damaged(records.file.path, before.position, why)
        if place.last_offset >= log_end:
            raise Damaged(
                records.file.path, place.position, f"offset {place.last_offset} is beyond the log end offset {log_end}"
            )
        before = place
