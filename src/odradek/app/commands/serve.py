"""odradek serve: parsed here by hand in its plain form, so that nothing but the broker is imported to start it.

Anything the hand-written parser does not take (--help, a misspelt option) is left to the command in tree.py, which has
the same options and says what is wrong.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple


class Serve(NamedTuple):
    """What to start."""

    config_path: Path | None
    overrides: list[str]
    is_insecure: bool


def parse(arguments: Sequence[str]) -> Serve | None:
    """[server.properties] [--override key=value ...] [--insecure]; None for anything else."""
    config_path: Path | None = None
    overrides: list[str] = []
    is_insecure = False
    rest: Iterator[str] = iter(arguments)
    for argument in rest:
        if argument == "--insecure":
            is_insecure = True
        elif argument == "--override" or argument.startswith("--override="):
            override = argument.removeprefix("--override=") if "=" in argument else next(rest, None)
            if override is None:
                return None
            overrides.append(override)
        elif argument.startswith("-") or config_path is not None:
            return None
        else:
            config_path = Path(argument)
    return Serve(config_path, overrides, is_insecure)


def start(serve: Serve) -> int:
    """Runs until it is told to stop; the exit status, 2 for a configuration that is not understood."""
    from odradek.core.configs.definition import ConfigError

    try:
        from odradek.app.server import run

        return run(serve.config_path, serve.overrides, serve.is_insecure)
    except ConfigError as error:
        sys.stderr.write(f"odradek serve: {error}\n")
        return 2
    except KeyboardInterrupt:
        return 130
