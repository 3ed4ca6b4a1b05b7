"""Resource limits of this process."""

from __future__ import annotations

import resource
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def file_size_limit(size: int) -> Iterator[None]:
    """Limit file sizes: writes beyond the limit fall short, then fail, as on a full disk."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def descriptors() -> int:
    """Return the number of open descriptors."""
    return sum(1 for _ in Path("/proc/self/fd").iterdir())
