"""The gate's answer about a request, and what the connections that share an answer learn from each other."""

from __future__ import annotations

from odradek.api.templates.produce_template import ProduceTemplates
from odradek.base.errors import ErrorCode
from odradek.base.limits import PRODUCE_TEMPLATES_IN_COMMON_MAX
from odradek.core.kernel.access import ANONYMOUS, EVERYTHING, Principal, Rights

SHAPES_IN_COMMON_MAX = 8  # Each costs a request that is like none of them a quarter of a microsecond.


class Admission:
    """The gate's answer about one request.

    `refused` is the error that the whole request is answered with, NONE if it is served.  `throttle_ms` is told in the
    answer, and the connection is muted for as long (KIP-219).  `version` is the version of the rules: templates learned
    from a connection's requests hold as long as neither the version nor the principal changes.  Connections that are
    given the same object learn from each other.
    """

    def __init__(
        self,
        principal: Principal = ANONYMOUS,
        rights: Rights = EVERYTHING,
        *,
        refused: ErrorCode = ErrorCode.NONE,
        throttle_ms: int = 0,
        version: int = 0,
    ) -> None:
        assert throttle_ms >= 0
        self.principal = principal
        self.rights = rights
        self.refused = refused
        self.throttle_ms = throttle_ms
        self.version = version
        self.is_plain = not refused and not throttle_ms  # The request may be answered from a template.
        # Templates of produce requests that this admission allows.
        self.produce_templates = ProduceTemplates(PRODUCE_TEMPLATES_IN_COMMON_MAX, SHAPES_IN_COMMON_MAX)
