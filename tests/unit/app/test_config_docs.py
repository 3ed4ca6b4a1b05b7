"""Documentation of configuration keys: each key has a sentence that states whether it has an effect."""

from __future__ import annotations

import re

from odradek.app.config.config_documentation import markdown
from odradek.app.config.effective import EFFECTIVE
from odradek.app.config.server_config import DEFAULTS
from odradek.core.configs.broker_configs import BrokerConfigs
from odradek.core.configs.broker_keys import BROKER_KEYS
from odradek.core.configs.docs import DOCS, UNUSED
from odradek.core.configs.topic_keys import TOPIC_KEYS

REFUSED = {"authorizer.class.name", "remote.storage.enable", "ssl.engine.factory.class"}
OF_COMPACTION = {"delete.retention.ms", "max.compaction.lag.ms", "min.cleanable.dirty.ratio", "min.compaction.lag.ms"}
PAGE = markdown(EFFECTIVE, DEFAULTS)


def test_every_key_is_documented() -> None:
    keys = set(BROKER_KEYS) | set(TOPIC_KEYS)
    assert DOCS.keys() == keys
    odd = {name for name, text in DOCS.items() if not re.fullmatch(r"[A-Z][^\n|]{10,}\.", text)}
    assert not odd


def test_every_described_key_is_documented() -> None:
    configs = BrokerConfigs.parse({"controlled.shutdown.max.retries": "1", "ssl.key.password": "x"})
    answered = [*configs.describe(), *configs.for_topic({"internal.segment.bytes": "100"}).describe()]
    assert len(answered) > 300
    assert not [entry.name for entry in answered if not entry.documentation]


def test_documentation_states_whether_a_key_has_an_effect() -> None:
    """A key that gets an effect moves from docs_unused_*.py to docs.py."""
    unused = {name for name in BROKER_KEYS if DOCS[name].endswith(UNUSED)}
    assert unused == BROKER_KEYS.keys() - EFFECTIVE - REFUSED
    assert all(" Not supported: " in DOCS[name] for name in REFUSED)


def test_compaction_keys_have_an_effect() -> None:
    for name in {name for name in DOCS if name.startswith("log.cleaner.")} | OF_COMPACTION:
        assert not DOCS[name].endswith(UNUSED)
        assert f"| `{name}` |" in PAGE
    assert "\n## Compaction\n\nWith `compact` in `cleanup.policy`" in PAGE


def test_every_row_of_the_page_ends_with_a_sentence() -> None:
    rows = [line for line in PAGE.splitlines() if line.startswith("| `")]
    assert len(rows) > 130
    assert not [row for row in rows if not row.endswith(". |")]
