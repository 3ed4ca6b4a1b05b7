"""Generator of docs/PROTOCOL.md from the API table: `python -m odradek.api > docs/PROTOCOL.md`."""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterable
from pathlib import Path

from odradek.api.table import BY_KEY, IN_CLUSTER, Api

INTRODUCTION = """\
# Protocol

This page lists the APIs that the broker supports, their versions, and notes on each API. It is for authors of clients,
and for users who check whether a client works with Odradek. Clients learn the versions from ApiVersions. *Advertised
from* in the table is the first version that ApiVersions reports, if it differs from the first supported one.

A note names a version where that version changes the API. *Flexible* versions have compact and tagged fields (KIP-482).
Where responses differ from those of Apache Kafka, DIFFERENCES.md describes the difference and the reason.

This page is generated: `python -m odradek.api` prints it from the table that dispatches requests and from the notes
in the source of each API.

## APIs for clients

"""

BETWEEN_BROKERS = """
## APIs between brokers

The brokers of a cluster (CLUSTER.md) also send these requests to each other. They accept them from brokers of Apache
Kafka, too.

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
    text = ast.get_docstring(ast.parse(source_of(api).read_text()))  # A compiled module has no docstring.
    assert text is not None
    return text


def source_of(api: Api) -> Path:
    """Return the file of the API's handler."""
    package, *folders = api.module.split(".")
    root = next(parent for parent in Path(__file__).parents if parent.name == package)
    return root.joinpath(*folders).with_suffix(".py")


if __name__ == "__main__":
    sys.exit(main())
