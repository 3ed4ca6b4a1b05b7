"""The gate's answer about a request, with the templates shared by connections that get the same answer."""

from __future__ import annotations

from odradek.api.templates.produce_template import ProduceTemplates
from odradek.base.errors import ErrorCode
from odradek.base.limits import PRODUCE_TEMPLATES_IN_COMMON_MAX
from odradek.core.kernel.access import ANONYMOUS, EVERYTHING, Principal, Rights

SHAPES_IN_COMMON_MAX = 8  # Each one costs a request that matches none of them a quarter of a microsecond.


class Admission:
    """The gate's answer about one request.

    `refused` is the error of the whole response, or NONE if the request is served. The response carries `throttle_ms`,
    and the connection is muted for that time (KIP-219). `version` is the version of the rules: templates learned from a
    connection's requests are valid while both the version and the principal stay the same. Connections with the same
    Admission object share the templates of produce requests.
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
