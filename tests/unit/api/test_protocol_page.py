"""docs/PROTOCOL.md, compared with the table of APIs."""

from __future__ import annotations

from pathlib import Path

import pytest

from odradek.api import __main__ as page

DOCS = Path(__file__).parents[3] / "docs"


def test_the_page_is_up_to_date(capsys: pytest.CaptureFixture[str]) -> None:
    """If it is not: python -m odradek.api > docs/PROTOCOL.md"""
    page.main()
    assert capsys.readouterr().out == (DOCS / "PROTOCOL.md").read_text()
