"""odradek serve: a parser for its plain form that imports nothing but the broker.

Anything else (--help, a misspelt option) is left to app/commands/command_tree.py, which has the same options and
explains usage errors.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple


class Serve(NamedTuple):
    """Arguments of `odradek serve`."""

    config_path: Path | None
    overrides: list[str]
    is_insecure: bool
    log_format: str = "text"
    log_levels: tuple[str, ...] = ()
    brokers: int | None = None  # Number of brokers; None for a single one.
    is_member: bool = False  # One of several brokers that share their metadata.


_OPTIONS = frozenset({"--override", "--log-format", "--log-level", "--brokers"})


def parse(arguments: Sequence[str]) -> Serve | None:
    """Parse [server.properties] [--insecure] and options with a value, as --name value or --name=value.

    Return None for anything else.
    """
    config_path: Path | None = None
    is_insecure = is_member = False
    values: dict[str, list[str]] = {name: [] for name in _OPTIONS}
    rest = iter(arguments)
    for argument in rest:
        name, equals, value = argument.partition("=")
        if argument == "--insecure":
            is_insecure = True
        elif argument == "--member":
            is_member = True
        elif name in _OPTIONS:
            given = value if equals else next(rest, None)
            if given is None:
                return None
            values[name].append(given)
        elif argument.startswith("-") or config_path is not None:
            return None
        else:
            config_path = Path(argument)
    formats, brokers = values["--log-format"] or ["text"], values["--brokers"]
    if brokers and not brokers[-1].isdecimal():
        return None
    return Serve(
        config_path,
        values["--override"],
        is_insecure,
        formats[-1],
        tuple(values["--log-level"]),
        int(brokers[-1]) if brokers else None,
        is_member,
    )


def start(serve: Serve) -> int:
    """Run one or several brokers until stopped. Return the exit status, 2 for a wrong configuration."""
    from odradek.core.configs.definition import ConfigError

    try:
        if serve.brokers is not None:
            from odradek.app.serve import supervisor

            return supervisor.run(
                serve.brokers,
                serve.config_path,
                serve.overrides,
                insecure=serve.is_insecure,
                log_format=serve.log_format,
                log_levels=serve.log_levels,
            )
        from odradek.app.serve.server import run

        return run(
            serve.config_path,
            serve.overrides,
            serve.is_insecure,
            serve.log_format,
            serve.log_levels,
            is_member=serve.is_member,
        )
    except ConfigError as error:
        sys.stderr.write(f"odradek serve: {error}\n")
        return 2
    except KeyboardInterrupt:
        return 130
