"""Check of the installation that runs this command, which may differ from the broker's installation."""

from __future__ import annotations

from odradek import __version__
from odradek.app.doctor.findings import Finding, note, ok
from odradek.app.terminal.compiled import how_compiled

CHECK = "installation"
ADVICE = "Install odradek again where there is a C compiler if brokers are to run from here: they are faster then."


def examine_installation() -> Finding:
    how = how_compiled()
    says = f"this command is odradek {__version__}, {how}; the broker has an installation of its own"
    return ok(CHECK, says) if how == "compiled" else note(CHECK, says, ADVICE)
