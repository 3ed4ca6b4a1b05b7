from __future__ import annotations

import pytest

from support.certificates import Authority, Known


@pytest.fixture(scope="session")
def authority() -> Authority:
    return Authority()


@pytest.fixture(scope="session")
def broker(authority: Authority) -> Known:
    return authority.known("localhost", "127.0.0.1")


@pytest.fixture(scope="session")
def client(authority: Authority) -> Known:
    return authority.known("client.example", common_name="client one")
