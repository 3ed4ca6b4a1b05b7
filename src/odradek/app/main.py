"""Entry point of the odradek command, which imports only the requested subcommand.

A broker should be ready in a fraction of a second and stay small. Plain `serve` and `--version` therefore never load
the libraries of the other commands (typer, rich: 60 ms and 15 MB). Everything else, including help and usage errors,
goes through app/commands/command_tree.py.
"""

from __future__ import annotations

import os
import sys

from odradek.app.terminal.interrupts import end_quietly


def main(arguments: tuple[str, ...] | list[str] | None = None) -> int:
    """Run the command. Return 0, 1 if it failed, 2 for a usage error, 130 after Ctrl-C.

    Without `arguments`, use those of the process, and set its Ctrl-C handling.
    """
    if arguments is not None:
        return run(list(arguments))
    end_quietly()
    try:
        return run(sys.argv[1:])
    finally:
        end_quietly()  # Undo a handler installed by a verb or a loop: interpreter shutdown takes a while.


def run(arguments: list[str]) -> int:
    fill_standard_streams()
    if arguments == ["--version"]:
        from odradek.app.terminal.compiled import version_line

        sys.stdout.write(f"{version_line()}\n")
        return 0
    if arguments[:1] == ["serve"]:
        from odradek.app.commands import serve_command as serve

        plain = serve.parse(arguments[1:])
        if plain is not None:
            return serve.start(plain)
    from odradek.app.commands import command_tree as tree

    return tree.run(arguments)


def fill_standard_streams() -> None:
    """Open /dev/null for closed standard streams, as of a daemon; otherwise a socket could become one."""
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # Returns the lowest free number, which is this one.


if __name__ == "__main__":
    sys.exit(main())
