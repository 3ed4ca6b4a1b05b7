"""The parts of docs/CLIENTS.md that tests compare with their observations."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

PAGE = Path(__file__).resolve().parents[3] / "docs" / "CLIENTS.md"
Versions = Mapping[str, list[int]]  # By API.


def rows() -> dict[str, list[str]]:
    """Return version, executed tests and known gaps by client."""
    _, *body = _table("Clients")
    return {name: rest for name, *rest in body}


def version_of(name: str) -> str:
    """Return the version of the client on the page, without that of its dependencies."""
    return rows()[name][0].split()[0]


def groups() -> dict[str, list[str]]:
    """Return, by client, the supported group protocols, static membership and transactions."""
    _, *body = _table("Group membership and transactions")
    return {name: rest for name, *rest in body}


def api_versions(name: str) -> Versions:
    """Return the versions of each API that the client uses."""
    (_, *names), *body = _table("Protocol versions")
    column = names.index(name)
    return {api: found for api, *cells in body if (found := [int(one) for one in re.findall(r"\d+", cells[column])])}


def _table(title: str) -> list[list[str]]:
    """Return the table of a section, with its header first."""
    section = PAGE.read_text().partition(f"\n## {title}\n")[2].partition("\n## ")[0]
    lines = [line for line in section.splitlines() if line.startswith("|")]
    head, _, *body = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
    return [head, *body]
