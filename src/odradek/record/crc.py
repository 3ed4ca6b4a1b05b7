"""CRC-32C (Castagnoli), the checksum of a record batch, by the processor's own instruction.

The package's `__init__` spends 50 ms on importlib.metadata to learn its own version, a third of the time in which a
broker should be up, so only its extension module is loaded.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib.machinery import ExtensionFileLoader, FileFinder, all_suffixes
from importlib.util import find_spec, module_from_spec
from typing import TypeAlias

Buffer: TypeAlias = bytes | bytearray | memoryview


def _load() -> Callable[[Buffer], int]:
    package = find_spec("crc32c")  # Finds it without running it.
    for folder in (package and package.submodule_search_locations) or ():
        spec = FileFinder(folder, (ExtensionFileLoader, all_suffixes())).find_spec("crc32c._crc32c")
        if spec is not None and spec.loader is not None:
            module = module_from_spec(spec)
            spec.loader.exec_module(module)
            function: Callable[[Buffer], int] = module.crc32c
            return function
    from crc32c import crc32c as slowly_imported  # Raises the ImportError that names what is missing.

    return slowly_imported


crc32c = _load()
