"""odradek doctor: diagnose a bootstrap address and suggest fixes."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Annotated

import typer

from odradek.app.cli.cli_options import DEFAULT_BOOTSTRAP_SERVER, AsJson, CommandConfig, client_config
from odradek.app.doctor.examination import examine
from odradek.app.doctor.findings import Finding, works
from odradek.app.doctor.installation import examine_installation
from odradek.app.terminal.command_failed import FAILED
from odradek.app.terminal.output import print_json, print_table, printable
from odradek.client.connection.client_config import address as parsed

TIMEOUT_SECONDS = 3.0


def doctor(
    address: Annotated[
        str, typer.Argument(metavar="HOST:PORT", help="Bootstrap address, as given to clients.")
    ] = DEFAULT_BOOTSTRAP_SERVER,
    timeout_seconds: Annotated[
        float, typer.Option("--timeout", "-t", min=0.1, max=60, metavar="SECONDS", help="Longest single wait.")
    ] = TIMEOUT_SECONDS,
    command_config: CommandConfig = None,
    as_json: AsJson = False,
) -> int:
    """Diagnose a bootstrap address and suggest fixes.

    Checks the name and its addresses, the connection, the service that answers,
    the versions, the cluster, the advertised address of every broker, and
    partitions without a leader or replicas.  Changes nothing.  The exit status
    is 0 if a client would work, 1 if not.

    Example: odradek doctor kafka.example.org:9092
    """
    tls = client_config(address, command_config).tls
    findings = [*examine(parsed(address), timeout_seconds, tls), examine_installation()]
    if as_json:
        print_json(to_json(address, findings))
    else:
        show(findings)
    return 0 if works(findings) else FAILED


def to_json(address: str, findings: Sequence[Finding]) -> dict[str, object]:
    return {
        "address": address,
        "works": works(findings),
        "findings": [
            {"check": one.check, "state": one.state.value.lower(), "says": one.message, "advice": one.advice}
            for one in findings
        ],
    }


def show(findings: Sequence[Finding]) -> None:
    print_table(
        ["check", "state", "what a client sees~"], [(one.check, one.state, printable(one.message)) for one in findings]
    )
    sys.stdout.write("\n")
    for advice in dict.fromkeys(one.advice for one in findings if one.advice):
        sys.stdout.write(f"- {printable(advice)}\n")
    sys.stdout.write("A client would work.\n" if works(findings) else "A client would not work.\n")
