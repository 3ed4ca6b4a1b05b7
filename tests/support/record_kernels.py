"""The kernels, compiled and interpreted from the same source, and records to test them with."""

from __future__ import annotations

import sys
from importlib import import_module
from importlib.machinery import SourceFileLoader
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType

import pytest
from hypothesis import strategies as st

import odradek.record.kernels
from odradek.record.builder import RecordIn

BUILDS = ("compiled", "interpreted")
KERNELS = Path(odradek.record.kernels.__file__).parent
INT64 = st.integers(-(2**63), 2**63 - 1)


def kernel(name: str, build: str) -> ModuleType:
    """Return one kernel module; skip the test if the compiled one is requested and does not exist."""
    if build == "interpreted":
        return _INTERPRETED.get(name) or _INTERPRETED.setdefault(name, _from_source(name))
    module = import_module(f"odradek.record.kernels.{name}")
    if not module.COMPILED:
        pytest.skip("the kernels are not compiled: run python setup.py build_ext --inplace")
    return module


_INTERPRETED: dict[str, ModuleType] = {}
_BUILT_ON = {"compact_runs": "compact"}  # Compiled kernels access each other's internals.


def _from_source(name: str) -> ModuleType:
    path = KERNELS / f"{name}.py"
    spec = spec_from_file_location(
        f"interpreted_{name}", path, loader=SourceFileLoader(f"interpreted_{name}", str(path))
    )
    assert spec is not None and spec.loader is not None
    module = module_from_spec(spec)
    with pytest.MonkeyPatch.context() as patch:
        if name in _BUILT_ON:
            below = _BUILT_ON[name]
            patch.setitem(sys.modules, f"odradek.record.kernels.{below}", kernel(below, "interpreted"))
        spec.loader.exec_module(module)
    assert not module.COMPILED
    return module


def cells(bytes_max: int = 40) -> st.SearchStrategy[bytes | None]:
    """Return a strategy for null, empty and short cells, and some with a length of more than one varint byte."""
    return st.none() | st.binary(max_size=bytes_max) | st.sampled_from([b"x" * 63, b"y" * 64, b"z" * 9000])


def headers() -> st.SearchStrategy[list[tuple[str, bytes | None]]]:
    return st.lists(st.tuples(st.text(st.characters(codec="utf-8"), max_size=5), cells(8)), max_size=3)


def records(timestamps: st.SearchStrategy[int] = INT64) -> st.SearchStrategy[list[RecordIn]]:
    return st.lists(st.tuples(cells(), cells(), headers(), timestamps), min_size=1, max_size=12)
