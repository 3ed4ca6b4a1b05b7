"""Effects and the events in which they end."""

from __future__ import annotations

from pathlib import Path
from typing import get_args

import pytest

from odradek.core.broker.effects import Event
from support.in_memory import Harness


@pytest.mark.parametrize("event", get_args(Event), ids=lambda one: one.__name__)
def test_each_event_has_a_handler(tmp_path: Path, event: type) -> None:
    assert event in Harness(tmp_path).broker._handlers
