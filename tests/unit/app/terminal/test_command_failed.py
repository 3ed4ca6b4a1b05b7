"""Error messages of failures; a bug has none."""

from __future__ import annotations

import pytest

from odradek.app.terminal.command_failed import sentence_of, status_of


def test_name_in_invalid_utf8_is_reported() -> None:
    """Python keeps such bytes of a command line as surrogates."""
    with pytest.raises(UnicodeEncodeError) as caught:
        b"caf\xe9".decode("utf-8", "surrogateescape").encode()
    assert sentence_of(caught.value) == r"'caf\udce9' is not UTF-8"
    assert status_of(caught.value) == 2


def test_unexpected_error_has_no_message() -> None:
    assert sentence_of(ValueError("x")) is None
    with pytest.raises(UnicodeEncodeError) as caught:
        "é".encode("ascii")
    assert sentence_of(caught.value) is None
