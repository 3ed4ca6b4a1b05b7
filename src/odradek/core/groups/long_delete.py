"""The deletion of a group with very many offsets: made ready beside the loop, and done at once.

deletion = LongDelete(shard, group_id)
deletion.encode()                       in a thread
deletion.finish(shard, now)             at once: the group is asked as it is now, and goes whole or stays whole
"""

from __future__ import annotations

from odradek.base.errors import Refused
from odradek.core.groups.offset_delete import RECORDS_PER_BATCH
from odradek.core.groups.offsets import tombstones
from odradek.core.groups.shard import GroupShard
from odradek.core.moment import Moment

AT_ONCE_MAX = 200  # Offsets of a group that is deleted without all this: two milliseconds.


class LongDelete:
    """One of them.  Raises Refused as `delete_group`."""

    def __init__(self, shard: GroupShard, group_id: str, now: Moment) -> None:
        shard.group(group_id).check_delete()
        self._group_id = group_id
        self._log = shard.log
        self._time = now.wall
        self._places = shard.offsets.places_of_group(group_id)
        self._batches: list[bytearray] = []

    def encode(self) -> None:
        """Makes the batches of tombstones."""
        for start in range(0, len(self._places), RECORDS_PER_BATCH):
            some = tombstones(self._places[start : start + RECORDS_PER_BATCH])
            self._batches.append(self._log.encoded(some, self._time))

    def finish(self, shard: GroupShard, now: Moment) -> None:
        """Raises Refused.  What a full disk left out is still there, as it is in the log."""
        group = shard.group(self._group_id)
        group.check_delete()
        written = 0
        try:
            for batch in self._batches:
                shard.log.append_encoded(batch, now)
                written += 1
            known = set(self._places)
            new = [place for place in shard.offsets.places_of_group(self._group_id) if place not in known]
            shard.write(tombstones(new) + group.tombstones(), now)
        except Refused:
            shard.offsets.forget(self._places[: written * RECORDS_PER_BATCH])
            raise
        shard.offsets.forget_group(self._group_id)
