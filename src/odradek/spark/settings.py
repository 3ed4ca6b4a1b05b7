"""The settings of a session that make micro-batches fast, and the line that a session without them is told.

Unix socket to the Python workers     40 ms a task (TCP with Nagle's algorithm and delayed acknowledgements)
RawLocalFs for file:                  36 ms a micro-batch of checkpoint writes (no .crc file beside each file)
"""

from __future__ import annotations

import logging
import os
from functools import cache

UNIX_SOCKET = "spark.python.unix.domain.socket.enabled"
LOCAL_FILES = "spark.hadoop.fs.AbstractFileSystem.file.impl"
FAST = {UNIX_SOCKET: "true", LOCAL_FILES: "org.apache.hadoop.fs.local.RawLocalFs"}

_log = logging.getLogger(__name__)


@cache
def advise_once() -> None:
    """Warns, once in a process, that the session lacks the first setting, and names both.

    It is called in a process that Spark has started, which sees of the session only that it uses a Unix socket.
    """
    if os.environ.get("PYTHON_UNIX_DOMAIN_ENABLED", "").lower() != "true":
        _log.warning(
            "Micro-batches are faster with %s=true (40 ms a task), which this session lacks, and, for checkpoints on a"
            " local disk, with %s=%s (36 ms a batch); odradek.spark.session.session() has both.",
            *(UNIX_SOCKET, LOCAL_FILES, FAST[LOCAL_FILES]),
        )
