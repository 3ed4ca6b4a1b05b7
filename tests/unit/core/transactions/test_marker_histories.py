"""Random histories of brokers, responses and coordinators: in the end every transaction ends as decided."""

from __future__ import annotations

from pathlib import Path

import pytest

from support.marker_histories import MarkerHistory

STEPS = 1000


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(30))
def test_every_transaction_ends_as_decided(tmp_path: Path, seed: int) -> None:
    history = MarkerHistory(tmp_path, seed)
    for _ in range(STEPS):
        history.step()
    history.heal()
    assert history.marked, "something happened"
