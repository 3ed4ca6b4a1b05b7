"""Configurations of topics and brokers in the metadata tree, at Kafka's paths in ZooKeeper.

    /config/topics/flights, /config/brokers/1, /config/brokers/<default>
    /config/changes/config_change_0000000007    owner of the changed configuration

All calls block and run in the thread that changes the tree. A configuration and its notice change together. One multi
contains many changes, since each multi syncs the disk. net/cluster/config_watch.py reads changes made by other brokers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from typing import NamedTuple

from odradek.base.errors import ErrorCode, Refused
from odradek.base.units import MINUTE_MS, BrokerId, TimestampMs, TopicName
from odradek.coordination import tree_layout as layout
from odradek.coordination.fields import BadZnodeError
from odradek.coordination.passwords import CannotEncode, PasswordEncoder
from odradek.coordination.tree import (
    Create,
    DiskBroken,
    MultiFailed,
    NoRoom,
    Operation,
    SetData,
    Tree,
    TreeFailed,
)
from odradek.core.broker import config_log_lines as config_log
from odradek.core.broker.effects import NO_CLIENT, AlterConfigs, Altered, ConfigOwner
from odradek.core.configs.broker_configs import BrokerConfigs
from odradek.core.configs.config_validation import DynamicConfigTexts, altered_broker, altered_topic, started_with
from odradek.core.configs.definition import ConfigError
from odradek.core.configs.edits import ConfigEdit
from odradek.net.cluster.dynamic_configs import DynamicConfigs, Problems, is_secret, stored

OWNERS_PER_MULTI = 100
NOTICE_KEPT_MS = 15 * MINUTE_MS  # The same as in Apache Kafka.

# Prepares the components around the core for new values, given the old ones; returns a function that applies them.
# Raises ConfigError.
Prepare = Callable[[BrokerConfigs, BrokerConfigs], Callable[[], None]]
NOTHING_SET = DynamicConfigTexts({}, {})


class PreparedConfigs(NamedTuple):
    """Prepared values of a broker, their source, and a function that applies them around the core."""

    configs: BrokerConfigs
    dynamic: DynamicConfigTexts
    apply: Callable[[], None]


class Write(NamedTuple):
    """One configuration to write."""

    owner: ConfigOwner
    before: Mapping[str, str]
    after: Mapping[str, str]
    operations: list[Operation]


class ConfigChanges:
    """Access to the configurations; `prepare` receives the broker's new values before they are written."""

    def __init__(
        self, tree: Tree, broker_id: BrokerId, configs: BrokerConfigs, encoder: PasswordEncoder, prepare: Prepare
    ) -> None:
        self._tree = tree
        self._configs = configs  # As written; the broker applies its own values a moment later.
        self._dynamic = NOTHING_SET  # Source of `_configs`.
        self._stored_dynamic = DynamicConfigs(tree, broker_id, encoder)
        self._broker_id = broker_id
        self._encoder = encoder
        self._prepare = prepare
        self._problems = Problems()

    def read_starting_configs(self) -> tuple[BrokerConfigs, Callable[[], None]]:
        """Return a starting broker's configuration including the tree's values, and a function to apply it.

        Unusable values and unreadable certificates are logged and skipped. Raises TreeFailed.
        """
        dynamic = self._read_dynamic()
        prepared = self._prepare_first((dynamic, dynamic.without_certificates(), NOTHING_SET))
        assert prepared is not None, "a configuration without dynamic values can always be prepared"
        self._configs, self._dynamic = prepared.configs, prepared.dynamic
        return prepared.configs, prepared.apply

    def reread(self) -> tuple[BrokerConfigs, Callable[[], None]] | None:
        """Return a running broker's new values from the tree as at its start; None if they have not changed.

        Unreadable certificates are logged, and the earlier ones stay. Raises TreeFailed without changing anything.
        """
        dynamic, before = self._read_dynamic(), self._dynamic
        if dynamic == before:
            return None
        prepared = self._prepare_first((dynamic, dynamic.with_certificates_of(before)))
        if prepared is None or prepared.dynamic == before:
            return None
        self._configs, self._dynamic = prepared.configs, prepared.dynamic
        owners = ConfigOwner(is_topic=False, name=str(self._broker_id)), ConfigOwner(is_topic=False, name="")
        for owner, old, new in zip(owners, before.usable(), prepared.dynamic.usable(), strict=True):
            config_log.log_config_change(owner, old, new, NO_CLIENT)
        return prepared.configs, prepared.apply

    def _prepare_first(self, candidates: Iterable[DynamicConfigTexts]) -> PreparedConfigs | None:
        """Return the first configuration that can be prepared, and log new problems."""
        problems: list[str] = []
        prepared = None
        for number, dynamic in enumerate(candidates):
            configs, unused = started_with(self._configs, dynamic)
            if number == 0:
                problems += unused
            try:
                apply = self._prepare(self._configs, configs)
            except ConfigError as error:
                problems.append(f"ignored the certificates of the dynamic configuration: {error}")
            else:
                prepared = PreparedConfigs(configs, self._dynamic if configs is self._configs else dynamic, apply)
                break
        self._problems.log_new_problems(problems)
        return prepared

    def _read_dynamic(self) -> DynamicConfigTexts:
        return self._stored_dynamic.read(self._dynamic)

    def change(self, change: AlterConfigs, now: TimestampMs) -> Altered:
        """Apply the edits, or only validate them if `is_dry`; return refusals in the result."""
        result = _Result(change, self._configs, self._dynamic)
        pending: list[Write] = []
        for owner, edit in change.edits.items():
            try:
                write = self._topic(owner, edit) if owner.is_topic else self._broker(owner, edit, result)
                pending.append(write)
            except Refused as refused:
                result.refused[owner] = refused
            except (TreeFailed, BadZnodeError) as failed:
                result.refused[owner] = _refusal(failed)
            # A broker's two configurations are validated together, so the first is written before the second.
            if len(pending) >= OWNERS_PER_MULTI or not owner.is_topic:
                self._write(pending, result)
                pending = []
        self._write(pending, result)
        self._configs, self._dynamic = result.configs, result.dynamic
        if not change.is_dry:
            with suppress(TreeFailed):
                self._delete_old_notices(now)
        return result.altered()

    def _topic(self, owner: ConfigOwner, edit: ConfigEdit) -> Write:
        path = layout.config(layout.TOPIC_CONFIGS, owner.name)
        before, version = stored(self._tree, path)
        after = altered_topic(self._configs, before, edit)
        if self._tree.exists(layout.topic(TopicName(owner.name))) is None:
            raise Refused(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"The topic '{owner.name}' does not exist.")
        return Write(owner, before, after, _operations(path, version, after))

    def _broker(self, owner: ConfigOwner, edit: ConfigEdit, result: _Result) -> Write:
        for_all = not owner.name
        name = owner.name or layout.DEFAULT_ENTITY
        path = layout.config(layout.BROKER_CONFIGS, name)
        stored_before, version = stored(self._tree, path)
        dynamic = self._read_dynamic()
        before = dynamic.cluster if for_all else dynamic.broker
        after, configs = altered_broker(result.configs, dynamic, edit, for_all=for_all)
        texts = after.cluster if for_all else after.broker
        try:
            stored_texts = {key: self._encoded(key, text, before, stored_before) for key, text in texts.items()}
            apply = self._prepare(result.configs, configs)
        except (ConfigError, CannotEncode) as error:
            raise Refused(ErrorCode.INVALID_REQUEST, str(error)) from None
        # A secret that cannot be decrypted stays unless everything is replaced, because the key may return.
        unread = {} if edit.replaces_all else {key: text for key, text in stored_before.items() if key not in before}
        removed = {edited_key.name for edited_key in edit.keys}
        stored_texts.update((key, text) for key, text in unread.items() if key not in removed)
        result.prepared = PreparedConfigs(configs, after, apply)
        return Write(owner, before, texts, _operations(path, version, stored_texts))

    def _encoded(self, key: str, text: str, before: Mapping[str, str], stored_texts: Mapping[str, str]) -> str:
        if not is_secret(key):
            return text
        return stored_texts[key] if before.get(key) == text else self._encoder.encode(text)

    def _write(self, writes: list[Write], result: _Result) -> None:
        """Write all configurations at once; if that fails, write each separately so others still succeed."""
        if not writes:
            return
        try:
            if not result.change.is_dry:
                self._tree.check_room()
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

    def _delete_old_notices(self, now: TimestampMs) -> None:
        for name in self._tree.children(layout.CONFIG_CHANGES):
            path = f"{layout.CONFIG_CHANGES}/{name}"
            stat = self._tree.exists(path)
            if stat is not None and now - stat.ctime < NOTICE_KEPT_MS:
                return  # Notices are sorted by creation.
            self._tree.delete(path)


class _Result:
    """Result of the edits so far."""

    def __init__(self, change: AlterConfigs, configs: BrokerConfigs, dynamic: DynamicConfigTexts) -> None:
        self.change = change
        self.configs = configs  # Values of the broker after the writes so far.
        self.dynamic = dynamic
        self.refused: dict[ConfigOwner, Refused] = {}
        self.prepared: PreparedConfigs | None = None
        self._topics: dict[TopicName, Mapping[str, str]] = {}
        self._broker: BrokerConfigs | None = None
        self._to_apply: list[Callable[[], None]] = []

    def written(self, write: Write) -> None:
        if self.change.is_dry:
            return
        config_log.log_config_change(write.owner, write.before, write.after, self.change.client)
        if write.owner.is_topic:
            self._topics[TopicName(write.owner.name)] = write.after
            return
        assert self.prepared is not None
        self.configs, self.dynamic, apply = self.prepared
        self._broker = self.configs
        self._to_apply.append(apply)

    def altered(self) -> Altered:
        return Altered(self.change.token, self._topics, self._broker, self._to_apply, self.refused)


def _operations(path: str, version: int | None, texts: Mapping[str, str]) -> list[Operation]:
    data = layout.encode_config(texts)
    notice = layout.encode_config_change(path.removeprefix(f"{layout.CONFIG}/"))
    return [
        Create(path, data) if version is None else SetData(path, data, version),
        Create(f"{layout.CONFIG_CHANGES}/{layout.CONFIG_CHANGE_PREFIX}", notice, sequential=True),
    ]


def _refusal(error: TreeFailed | BadZnodeError) -> Refused:
    if isinstance(error, NoRoom | DiskBroken):
        return Refused(ErrorCode.KAFKA_STORAGE_ERROR, str(error))
    return Refused(ErrorCode.UNKNOWN_SERVER_ERROR, f"failed to change the configuration: {error}")
