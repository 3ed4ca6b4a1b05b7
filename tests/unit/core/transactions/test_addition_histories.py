"""Random histories between leader and coordinator: acknowledged records are part of their transaction, which ends."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from support.addition_histories import AdditionHistory

STEPS = 120
SEEDS_PER_TEST = 20


@pytest.fixture(autouse=True)
def quick_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    """Skip syncs: no power fails here, and they would take nearly all of the time."""
    for name in ("fsync", "fdatasync"):
        monkeypatch.setattr(os, name, lambda descriptor: None)


@pytest.mark.slow
@pytest.mark.share(3)
@pytest.mark.parametrize("block", range(10))
def test_acknowledged_records_are_part_of_their_transaction(tmp_path: Path, block: int) -> None:
    acknowledged = 0
    for seed in range(block * SEEDS_PER_TEST, (block + 1) * SEEDS_PER_TEST):
        (tmp_path / str(seed)).mkdir()
        history = AdditionHistory(tmp_path / str(seed), seed)
        for _ in range(STEPS):
            history.step()
        history.heal()
        acknowledged += history.acknowledged
    assert acknowledged, "something happened"
