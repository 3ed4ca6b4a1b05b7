from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from odradek.app.commands.consume_command import offset_after
from odradek.base.units import Offset
from odradek.record.builder import encode_batch
from odradek.record.record_batch import Batch


@given(st.integers(1, 20), st.integers(0, 30), st.data())
def test_offset_after_a_number_of_records(records: int, start: int, data: st.DataObject) -> None:
    batch = Batch.checked(encode_batch([(None, b"x", (), 0)] * records))
    batch.stamp(Offset(10), batch.leader_epoch)
    seen = [offset for offset in range(10, 10 + records) if offset >= start]
    count = data.draw(st.integers(0, max(0, len(seen) - 1)))
    following = offset_after(batch, start, count)
    assert [offset for offset in seen if offset < following] == seen[:count]
