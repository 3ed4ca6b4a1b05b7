"""`python -m odradek.api` prints docs/PROTOCOL.md: what is answered, from the table that answers it."""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterable
from pathlib import Path

from odradek.api.table import BY_KEY, IN_CLUSTER, Api

INTRODUCTION = """\
# Protocol

What the broker answers. This page is printed by `python -m odradek.api` from the table that dispatches requests; the
notes are those at the head of each API's file. Where answers differ from those of Apache Kafka, DIFFERENCES.md says how
and why.

"""

BETWEEN_BROKERS = """
Brokers of a cluster (CLUSTER.md) answer each other, and brokers of Apache Kafka, these too.

"""

HEAD = """\
| API | key | versions |
|---|---|---|
"""


def main() -> int:
    between = [api for key, api in IN_CLUSTER.items() if key not in BY_KEY]
    notes = "".join(f"\n## {api.key.title}\n\n{_notes(api)}\n" for api in (*BY_KEY.values(), *between))
    sys.stdout.write(INTRODUCTION + _table(BY_KEY.values()) + BETWEEN_BROKERS + _table(between) + notes)
    return 0


def _table(apis: Iterable[Api]) -> str:
    return HEAD + "".join(f"| {api.key.title} | {api.key} | {_versions(api)} |\n" for api in apis)


def _versions(api: Api) -> str:
    text = f"{api.versions.start} to {api.versions.stop - 1}"
    if api.is_own:
        return f"{text} (Odradek's own, not advertised)"
    return text if api.advertised_from is None else f"{text} (advertised from {api.advertised_from})"


def _notes(api: Api) -> str:
    text = ast.get_docstring(ast.parse(source_of(api).read_text()))  # A compiled module has none.
    assert text is not None
    return text


def source_of(api: Api) -> Path:
    """Return the file of the API's handler."""
    package, *folders = api.module.split(".")
    root = next(parent for parent in Path(__file__).parents if parent.name == package)
    return root.joinpath(*folders).with_suffix(".py")


if __name__ == "__main__":
    sys.exit(main())
