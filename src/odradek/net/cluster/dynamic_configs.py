"""Dynamic configuration of one broker in the metadata tree: its own znode and that of all brokers.

Passwords are encrypted there. An unreadable value is logged once, and again if it has been readable in between.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping

from odradek.base.units import BrokerId
from odradek.coordination import tree_layout as layout
from odradek.coordination.fields import BadZnodeError
from odradek.coordination.passwords import CannotEncode, PasswordEncoder
from odradek.coordination.tree import NoNode, Tree
from odradek.core.configs.broker_keys import broker_key
from odradek.core.configs.config_validation import KEEPS_ALL, DynamicConfigTexts

_LOG = logging.getLogger(__name__)


class Problems:
    """Log of problems that reports each one when it appears, and not again while it persists."""

    def __init__(self) -> None:
        self._reported: frozenset[str] = frozenset()

    def log_new_problems(self, problems: Iterable[str]) -> None:
        """Log new problems, given all problems that exist now."""
        present = list(dict.fromkeys(problems))
        for problem in present:
            if problem not in self._reported:
                _LOG.error("%s", problem)
        self._reported = frozenset(present)


class DynamicConfigs:
    """Both znodes of one broker."""

    def __init__(self, tree: Tree, broker_id: BrokerId, encoder: PasswordEncoder) -> None:
        self._tree = tree
        self._paths = tuple(
            layout.config(layout.BROKER_CONFIGS, name) for name in (str(broker_id), layout.DEFAULT_ENTITY)
        )
        self._encoder = encoder
        self._problems = Problems()

    def read(self, known: DynamicConfigTexts) -> DynamicConfigTexts:
        """Return the values for this broker and for all brokers; use `known` for an unreadable znode.

        Passwords that cannot be decrypted are omitted. Raises TreeFailed.
        """
        problems: list[str] = []
        parts = [self._part(path, before, problems) for path, before in zip(self._paths, known, strict=True)]
        self._problems.log_new_problems(problems)
        return DynamicConfigTexts(*parts)

    def _part(self, path: str, known: Mapping[str, str], problems: list[str]) -> Mapping[str, str]:
        try:
            texts, _ = stored(self._tree, path)
        except BadZnodeError as bad:
            problems.append(f"ignored {path}: {bad}")
            return known or KEEPS_ALL  # The unreadable value may have been set to keep everything.
        return self._decoded(path, texts, problems)

    def _decoded(self, path: str, texts: Mapping[str, str], problems: list[str]) -> dict[str, str]:
        decoded = {}
        for name, text in texts.items():
            try:
                decoded[name] = self._encoder.decode(text) if is_secret(name) else text
            except CannotEncode as failed:
                problems.append(f"ignored {name} in {path}: {failed}")
        return decoded


def stored(tree: Tree, path: str) -> tuple[dict[str, str], int | None]:
    """Return the content and version of a configuration znode; without a znode, return an empty dict.

    Raises BadZnodeError.
    """
    try:
        data, stat = tree.get(path)
    except NoNode:
        return {}, None
    try:
        return layout.decode_config(data), stat.version
    except BadZnodeError as bad:
        raise BadZnodeError(f"failed to read {path}: {bad}") from bad


def is_secret(name: str) -> bool:
    """Return whether the tree stores values of this broker key encrypted."""
    key = broker_key(name)
    return key is not None and key.sensitive
