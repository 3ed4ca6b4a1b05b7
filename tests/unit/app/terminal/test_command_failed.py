"""What went wrong, as a sentence; what is a bug has none."""

from __future__ import annotations

import pytest

from odradek.app.terminal.command_failed import sentence_of, status_of


def test_a_name_that_is_not_utf8() -> None:
    """As Python keeps the bytes of a command line."""
    with pytest.raises(UnicodeEncodeError) as caught:
        b"caf\xe9".decode("utf-8", "surrogateescape").encode()
    assert sentence_of(caught.value) == r"'caf\udce9' is not UTF-8"
    assert status_of(caught.value) == 2


def test_a_bug_has_no_sentence() -> None:
    assert sentence_of(ValueError("x")) is None
    with pytest.raises(UnicodeEncodeError) as caught:
        "é".encode("ascii")
    assert sentence_of(caught.value) is None
