"""Fixtures for a mover with its threads, and a file for it.

Imports are late: other tests here also run where there is no mover.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from support.moving import Held, Moving


@pytest.fixture(scope="module")
def mover() -> Iterator[Moving]:
    from support.moving import Moving

    moving = Moving()
    yield moving
    moving.end()


@pytest.fixture
def file(tmp_path: Path) -> Held:
    from support.moving import Held

    return Held(tmp_path / "file")
