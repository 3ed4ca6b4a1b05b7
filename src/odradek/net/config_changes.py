"""The configurations of topics and brokers in the metadata tree, where Apache Kafka has them under ZooKeeper.

    /config/topics/flights, /config/brokers/1, /config/brokers/<default>
    /config/changes/config_change_0000000007    whose configuration changed

All calls block and are made in the thread that changes the tree.  A configuration is changed together with the notice
of it; many are in one multi, since each multi is a sync of the disk.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import NamedTuple

from odradek.base.errors import ErrorCode, Refused
from odradek.base.units import MINUTE_MS, BrokerId, TimestampMs, TopicName
from odradek.coordination import layout
from odradek.coordination.fields import BadZnodeError
from odradek.coordination.passwords import CannotEncode, PasswordEncoder
from odradek.coordination.tree import (
    Create,
    DiskBroken,
    MultiFailed,
    NoNode,
    NoRoom,
    Operation,
    SetData,
    Tree,
    TreeFailed,
)
from odradek.core import config_log
from odradek.core.configs.altering import Dynamic, altered_broker, altered_topic, started_with
from odradek.core.configs.broker import BrokerConfigs
from odradek.core.configs.broker_keys import broker_key
from odradek.core.configs.definition import ConfigError
from odradek.core.configs.edits import ConfigEdit
from odradek.core.effects import AlterConfigs, Altered, ConfigOwner

_LOG = logging.getLogger(__name__)

OWNERS_PER_MULTI = 100
NOTICE_KEPT_MS = 15 * MINUTE_MS  # As long as in Apache Kafka.

# Makes ready what is around the core for new values, by what they were; returns what puts it in force.
# Raises ConfigError.
Prepare = Callable[[BrokerConfigs, BrokerConfigs], Callable[[], None]]


class Write(NamedTuple):
    """One configuration to be written."""

    owner: ConfigOwner
    before: Mapping[str, str]
    after: Mapping[str, str]
    operations: list[Operation]


class ConfigChanges:
    """The door to the configurations.  `prepare` is called with the broker's new values before they are written."""

    def __init__(
        self, tree: Tree, broker_id: BrokerId, configs: BrokerConfigs, encoder: PasswordEncoder, prepare: Prepare
    ) -> None:
        self._tree = tree
        self._configs = configs  # As they are written: the broker's own become so a moment later.
        self._broker_id = broker_id
        self._encoder = encoder
        self._prepare = prepare

    def begin(self) -> tuple[BrokerConfigs, Callable[[], None]]:
        """Returns what a starting broker's configuration is with what the tree has, and what puts it in force.

        What can't be used, and certificates that can't be read, are told and left out.  Raises TreeFailed.
        """
        dynamic = self.dynamic()
        for usable in (dynamic, dynamic.without_certificates(), Dynamic({}, {})):
            configs, problems = started_with(self._configs, usable)
            for problem in problems if usable is dynamic else ():
                _LOG.error("%s", problem)
            try:
                in_force = self._prepare(self._configs, configs)
            except ConfigError as error:
                _LOG.error("certificates of the dynamic configuration are not used: %s", error)
            else:
                self._configs = configs
                return configs, in_force
        raise AssertionError("with nothing set dynamically nothing is to be made ready")

    def dynamic(self) -> Dynamic:
        """Returns what is set for this broker and for all brokers; what can't be read is left out, and told.

        Raises TreeFailed.
        """
        return Dynamic(*(self._readable(str(name)) for name in (self._broker_id, layout.DEFAULT_ENTITY)))

    def _readable(self, name: str) -> dict[str, str]:
        path = layout.config(layout.BROKER_CONFIGS, name)
        try:
            stored, _ = self._stored(path)
        except BadZnodeError as bad:
            _LOG.error("%s is not used: %s", path, bad)
            return {}
        return self._decoded(path, stored)

    def _decoded(self, path: str, stored: Mapping[str, str]) -> dict[str, str]:
        texts = {}
        for name, text in stored.items():
            try:
                texts[name] = self._encoder.decode(text) if _is_secret(name) else text
            except CannotEncode as failed:
                _LOG.error("%s in %s is not used: %s", name, path, failed)
        return texts

    def change(self, change: AlterConfigs, now: TimestampMs) -> Altered:
        """Carries out the edits, or with `is_dry` only checks them; a refusal is in the result and never raised."""
        result = _Result(change, self._configs)
        pending: list[Write] = []
        for owner, edit in change.edits.items():
            try:
                write = self._topic(owner, edit) if owner.is_topic else self._broker(owner, edit, result)
                pending.append(write)
            except Refused as refused:
                result.refused[owner] = refused
            except (TreeFailed, BadZnodeError) as failed:
                result.refused[owner] = _refusal(failed)
            # A broker's two configurations are checked with each other, so that the first is written before the next.
            if len(pending) >= OWNERS_PER_MULTI or not owner.is_topic:
                self._write(pending, result)
                pending = []
        self._write(pending, result)
        self._configs = result.configs
        if not change.is_dry:
            with suppress(TreeFailed):
                self._forget_notices(now)
        return result.altered()

    def _topic(self, owner: ConfigOwner, edit: ConfigEdit) -> Write:
        path = layout.config(layout.TOPIC_CONFIGS, owner.name)
        before, version = self._stored(path)
        after = altered_topic(self._configs, before, edit)
        if self._tree.exists(layout.topic(TopicName(owner.name))) is None:
            raise Refused(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"The topic '{owner.name}' does not exist.")
        return Write(owner, before, after, _operations(path, version, after))

    def _broker(self, owner: ConfigOwner, edit: ConfigEdit, result: _Result) -> Write:
        for_all = not owner.name
        name = owner.name or layout.DEFAULT_ENTITY
        path = layout.config(layout.BROKER_CONFIGS, name)
        stored, version = self._stored(path)
        dynamic = self.dynamic()
        before = dynamic.cluster if for_all else dynamic.broker
        after, configs = altered_broker(result.configs, dynamic, edit, for_all=for_all)
        texts = after.cluster if for_all else after.broker
        try:
            kept = {key: self._encoded(key, text, before, stored) for key, text in texts.items()}
            in_force = self._prepare(result.configs, configs)
        except (ConfigError, CannotEncode) as error:
            raise Refused(ErrorCode.INVALID_REQUEST, str(error)) from None
        # What could not be decrypted stays, unless all is replaced: the secret may come back.
        unread = {} if edit.replaces_all else {key: text for key, text in stored.items() if key not in before}
        removed = {one.name for one in edit.keys}
        kept.update((key, text) for key, text in unread.items() if key not in removed)
        result.prepared = configs, in_force
        return Write(owner, before, texts, _operations(path, version, kept))

    def _encoded(self, key: str, text: str, before: Mapping[str, str], stored: Mapping[str, str]) -> str:
        if not _is_secret(key):
            return text
        return stored[key] if before.get(key) == text else self._encoder.encode(text)

    def _stored(self, path: str) -> tuple[dict[str, str], int | None]:
        """Returns what a znode holds, and its version; without it nothing is set.  Raises BadZnodeError."""
        try:
            data, stat = self._tree.get(path)
        except NoNode:
            return {}, None
        try:
            return layout.decode_config(data), stat.version
        except BadZnodeError as bad:
            raise BadZnodeError(f"{path} can't be read: {bad}") from bad

    def _write(self, writes: list[Write], result: _Result) -> None:
        """Writes all of them at once, or if that fails each by itself, so that one does not keep back the others."""
        if not writes:
            return
        try:
            if not result.change.is_dry:
                self._tree.multi([operation for write in writes for operation in write.operations])
        except TreeFailed as failed:
            if len(writes) == 1:
                result.refused[writes[0].owner] = _refusal(failed.error if isinstance(failed, MultiFailed) else failed)
            else:
                for write in writes:
                    self._write([write], result)
            return
        for write in writes:
            result.written(write)

    def _forget_notices(self, now: TimestampMs) -> None:
        for name in self._tree.children(layout.CONFIG_CHANGES):
            path = f"{layout.CONFIG_CHANGES}/{name}"
            stat = self._tree.exists(path)
            if stat is not None and now - stat.ctime < NOTICE_KEPT_MS:
                return  # They are in the order in which they were made.
            self._tree.delete(path)


class _Result:
    """What has become of the edits so far."""

    def __init__(self, change: AlterConfigs, configs: BrokerConfigs) -> None:
        self.change = change
        self.configs = configs  # The broker's, as they are after what was written.
        self.refused: dict[ConfigOwner, Refused] = {}
        self.prepared: tuple[BrokerConfigs, Callable[[], None]] | None = None
        self._topics: dict[TopicName, Mapping[str, str]] = {}
        self._broker: BrokerConfigs | None = None
        self._in_force: list[Callable[[], None]] = []

    def written(self, write: Write) -> None:
        if self.change.is_dry:
            return
        config_log.tell(write.owner, write.before, write.after, self.change.asker)
        if write.owner.is_topic:
            self._topics[TopicName(write.owner.name)] = write.after
            return
        assert self.prepared is not None
        self.configs, in_force = self.prepared
        self._broker = self.configs
        self._in_force.append(in_force)

    def altered(self) -> Altered:
        return Altered(self.change.token, self._topics, self._broker, self._in_force, self.refused)


def _operations(path: str, version: int | None, texts: Mapping[str, str]) -> list[Operation]:
    data = layout.encode_config(texts)
    notice = layout.encode_config_change(path.removeprefix(f"{layout.CONFIG}/"))
    return [
        Create(path, data) if version is None else SetData(path, data, version),
        Create(f"{layout.CONFIG_CHANGES}/{layout.CONFIG_CHANGE_PREFIX}", notice, sequential=True),
    ]


def _is_secret(name: str) -> bool:
    key = broker_key(name)
    return key is not None and key.sensitive


def _refusal(error: TreeFailed | BadZnodeError) -> Refused:
    if isinstance(error, NoRoom | DiskBroken):
        return Refused(ErrorCode.KAFKA_STORAGE_ERROR, str(error))
    return Refused(ErrorCode.UNKNOWN_SERVER_ERROR, f"the configuration could not be changed: {error}")
