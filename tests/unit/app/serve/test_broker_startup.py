"""Stopping a broker during its startup."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from odradek.app.config.server_config import load
from odradek.app.serve.broker_startup import start
from odradek.coordination import tree_layout as layout
from odradek.coordination.sqlite import METADATA_FILE, SqliteTree
from odradek.log.files.log_file_names import CLEAN_SHUTDOWN

pytestmark = pytest.mark.waits


@pytest.mark.parametrize("is_member", [False, True])
def test_stop_during_startup_leaves_the_cluster_and_clean_logs(tmp_path: Path, is_member: bool) -> None:
    overrides = [f"log.dirs={tmp_path}", "listeners=PLAINTEXT://127.0.0.1:0"]
    settings = load(None, overrides, insecure=False)._replace(is_member=is_member)

    async def begin_and_stop() -> None:
        starting = asyncio.create_task(start(settings, asyncio.get_running_loop()))
        while not (tmp_path / METADATA_FILE).exists():  # The file is opened with everything else, without a pause.
            await asyncio.sleep(0)
        assert not starting.done()
        starting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await starting

    asyncio.run(begin_and_stop())
    assert (tmp_path / CLEAN_SHUTDOWN).exists()
    tree = SqliteTree(tmp_path / METADATA_FILE, durable=False)
    assert tree.children(layout.BROKER_IDS) == []
    tree.close()
