"""Session settings that make micro-batches fast, and the warning for a session without them.

Unix socket to the Python workers     40 ms a task (TCP with Nagle's algorithm and delayed acknowledgements)
RawLocalFs for file:                  36 ms a micro-batch of checkpoint writes (no .crc file next to each file)
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
    """Warn, once per process, that the session lacks the first setting, and name both.

    This is called in a process that Spark has started, which can only see whether the session uses a Unix socket.
    """
    if os.environ.get("PYTHON_UNIX_DOMAIN_ENABLED", "").lower() != "true":
        _log.warning(
            "Micro-batches are faster with %s=true (40 ms a task), which this session lacks, and, for checkpoints on a"
            " local disk, with %s=%s (36 ms a batch); odradek.spark.session.session() has both.",
            *(UNIX_SOCKET, LOCAL_FILES, FAST[LOCAL_FILES]),
        )
