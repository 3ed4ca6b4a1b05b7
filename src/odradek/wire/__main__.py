"""The command python -m odradek.wire list | explain NAME VERSION."""

from __future__ import annotations

import sys

from odradek.wire.explain import catalog_text, classes_named, explain
from odradek.wire.schema.layout import versions_text
from odradek.wire.schema.schema import schema_of

USAGE = "use `list` or `explain NAME VERSION`, for example `python -m odradek.wire explain Fetch 12`"


def main(arguments: list[str]) -> int:
    """Run a command and return the exit status: 0, or 2 with one sentence on standard error."""
    try:
        print(_answer(arguments), end="")
    except ValueError as error:
        print(f"odradek.wire: {error}", file=sys.stderr)
        return 2
    except BrokenPipeError:
        sys.stderr.close()  # The reader of the output closed it early, which is not a failure.
    return 0


def _answer(arguments: list[str]) -> str:
    match arguments:
        case ["list"]:
            return catalog_text()
        case ["explain", name, version]:
            return explain(name, _version(name, version))
        case _:
            raise ValueError(USAGE)


def _version(name: str, text: str) -> int:
    schema = schema_of(classes_named(name)[0])
    if not text.isascii() or not text.isdigit() or int(text) not in schema.versions:
        raise ValueError(f"{name} has no version {text}, only {versions_text(schema)}")
    return int(text)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
