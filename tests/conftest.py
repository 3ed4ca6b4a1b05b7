"""What every test may use."""

from __future__ import annotations

import pytest
from hypothesis import settings

# How long an example takes says more of the machine than of the code.
settings.register_profile("odradek", deadline=None)
settings.load_profile("odradek")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--soak", action="store_true", help="run the long tests too")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if config.getoption("--soak"):
        return
    skip = pytest.mark.skip(reason="long; run with --soak")
    for item in items:
        if "soak" in item.keywords:
            item.add_marker(skip)
