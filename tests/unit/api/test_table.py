"""The table of APIs, which finds modules, messages and handlers by name."""

from __future__ import annotations

import ast
import subprocess
import sys

import pytest

from odradek.api.__main__ import source_of
from odradek.api.table import BY_KEY, Api
from odradek.wire.catalog import APIS
from odradek.wire.schema.schema import schema_of

START_SCRIPT = """
import sys
import odradek.app.serve.server
print([name for name in sys.modules if name.startswith("odradek.api.") and name.rpartition(".")[2] in sys.argv[1:]])
"""


@pytest.mark.parametrize("api", BY_KEY.values(), ids=lambda api: api.key.title)
def test_each_api_has_a_message_and_handlers(api: Api) -> None:
    request, _ = APIS[api.key]
    assert api.request is request
    assert schema_of(request).api_key == api.key
    assert set(api.versions) <= set(schema_of(request).versions)
    assert callable(api.handle) and callable(api.refuse)
    for handler, parameters in (("handle", ["call", "body"]), ("refuse", ["call", "body", "code"])):
        arguments = _written(api, handler).args.args
        assert [one.arg for one in arguments] == parameters
        body = arguments[1].annotation
        assert isinstance(body, ast.Name) and body.id == request.__name__


def _written(api: Api, name: str) -> ast.FunctionDef:
    """Return a function as in the source: a compiled one has no signature."""
    room = ast.parse(source_of(api).read_text())
    return next(one for one in room.body if isinstance(one, ast.FunctionDef) and one.name == name)


@pytest.mark.waits
def test_import_loads_only_the_needed_handlers() -> None:
    names = [api.key.name.lower() for api in BY_KEY.values()]
    command = [sys.executable, "-c", START_SCRIPT, *names]
    loaded = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert "odradek.api.produce.produce" in loaded
    assert "odradek.api.groups.join_group" not in loaded
