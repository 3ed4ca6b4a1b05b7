"""Check of the installation that runs this command, which may differ from the broker's installation."""

from __future__ import annotations

from odradek import __version__
from odradek.app.doctor.findings import Finding, note, ok
from odradek.app.terminal.compiled import how_compiled

CHECK = "installation"
ADVICE = "To run brokers from this installation, reinstall odradek with a C compiler: compiled brokers are faster."


def examine_installation() -> Finding:
    how = how_compiled()
    message = f"this command is odradek {__version__}, {how}; the broker's version may differ"
    return ok(CHECK, message) if how == "compiled" else note(CHECK, message, ADVICE)
