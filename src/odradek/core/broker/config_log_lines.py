"""Log lines for changed configurations: one for each, with the changed keys.

As in core/broker/topic_log_lines.py, the thread that has changed the metadata tree writes them.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping

from odradek.core.broker.effects import ClientLogFields, ConfigOwner
from odradek.core.configs.broker_keys import broker_key

_LOG = logging.getLogger(__name__)


def log_config_change(
    owner: ConfigOwner, before: Mapping[str, str], after: Mapping[str, str], client: ClientLogFields
) -> None:
    """Log the keys that were set, with their values, and the keys that were removed; hide secrets."""
    assigned = [f"{name}={_shown(owner, name, text)}" for name, text in after.items() if before.get(name) != text]
    unset = [f"{name} removed" for name in before if name not in after]
    changes = ", ".join(assigned + unset)
    if changes:
        _LOG.info("configuration of %s changed: %s", _owner_text(owner), changes, extra=client)


def _owner_text(owner: ConfigOwner) -> str:
    if owner.is_topic:
        return f"topic {owner.name}"
    return f"broker {owner.name}" if owner.name else "all brokers"


def _shown(owner: ConfigOwner, name: str, text: str) -> str:
    key = None if owner.is_topic else broker_key(name)
    return "***" if key is not None and key.sensitive else text
