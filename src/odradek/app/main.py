"""The odradek command.  Starts whatever was asked for, and imports nothing else.

A broker should be ready in a fraction of a second and stay small, so `serve` in its plain form and `--version` never
load the machinery of the other commands (typer, rich: 60 ms and 15 MB); everything else, help and mistakes included,
goes through app/commands/command_tree.py.
"""

from __future__ import annotations

import os
import sys

from odradek.app.terminal.interrupts import end_quietly


def main(arguments: tuple[str, ...] | list[str] | None = None) -> int:
    """Runs the command; returns 0, 1 if it failed, 2 if it was not understood, 130 after Ctrl-C.

    Without arguments it takes those of the process, and what Ctrl-C does there.
    """
    if arguments is not None:
        return run(list(arguments))
    end_quietly()
    try:
        return run(sys.argv[1:])
    finally:
        end_quietly()  # What a verb, or a loop, put in place for itself: the interpreter takes a while to end.


def run(given: list[str]) -> int:
    fill_standard_streams()
    if given == ["--version"]:
        from odradek.app.terminal.compiled import version_line

        sys.stdout.write(f"{version_line()}\n")
        return 0
    if given[:1] == ["serve"]:
        from odradek.app.commands import serve_command as serve

        plain = serve.parse(given[1:])
        if plain is not None:
            return serve.start(plain)
    from odradek.app.commands import command_tree as tree

    return tree.run(given)


def fill_standard_streams() -> None:
    """Opens /dev/null for standard streams that are closed, as a daemon's may be; else a socket would become one."""
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # Takes the lowest number that is free, which is this one.


if __name__ == "__main__":
    sys.exit(main())
