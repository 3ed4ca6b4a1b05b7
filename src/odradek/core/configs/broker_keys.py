"""All keys of a broker's configuration, and definitions of names that are in no table.

Names under `listener.name.<listener>.` repeat a key for one listener, with the SASL mechanism in between if there is
one.  Names under the plug-in prefixes are stored unchecked.
"""

from __future__ import annotations

from odradek.core.configs.broker_cluster import CLUSTER_KEYS
from odradek.core.configs.broker_groups import GROUPS_KEYS
from odradek.core.configs.broker_log import LOG_KEYS
from odradek.core.configs.broker_network import NETWORK_KEYS
from odradek.core.configs.definition import LOW, MEDIUM, ConfigKey, ConfigType, boolean, password, string

# Read by Kafka's own authorizers, not by its brokers, and found in most secured server.properties.
_AUTHORIZER_KEYS = (
    boolean("allow.everyone.if.no.acl.found", False, None, LOW, retired=True),
    string("super.users", None, None, LOW, retired=True),
)
# Java's names for a broker's identity at ZooKeeper, system properties of the JVM there; the last one is Odradek's.
ZOOKEEPER_USER_KEYS = (
    string("java.security.auth.login.config", None, None, MEDIUM, retired=True),
    boolean("zookeeper.sasl.client", True, None, LOW, retired=True),
    string("zookeeper.sasl.clientconfig", "Client", None, LOW, retired=True),
    password("odradek.zookeeper.auth", None, None, MEDIUM, retired=True),
)
BROKER_KEYS: dict[str, ConfigKey] = {
    key.name: key
    for keys in (CLUSTER_KEYS, GROUPS_KEYS, LOG_KEYS, NETWORK_KEYS, _AUTHORIZER_KEYS, ZOOKEEPER_USER_KEYS)
    for key in keys
}
# Set through AlterConfigs only, and listed only once they are set.
DYNAMIC_ONLY = frozenset(
    {
        "follower.replication.throttled.rate",
        "leader.replication.throttled.rate",
        "replica.alter.log.dirs.io.max.bytes.per.second",
    }
)
PLUGIN_PREFIXES = ("config.providers.", "metrics.context.", "rsm.config.", "rlmm.config.")
_LISTENER_PREFIX = "listener.name."

# Fallback keys of a broker key, in order of precedence.
BROKER_SYNONYMS: dict[str, tuple[str, ...]] = {
    "log.roll.ms": ("log.roll.ms", "log.roll.hours"),
    "log.roll.jitter.ms": ("log.roll.jitter.ms", "log.roll.jitter.hours"),
    "log.flush.interval.ms": ("log.flush.interval.ms", "log.flush.scheduler.interval.ms"),
    "log.retention.ms": ("log.retention.ms", "log.retention.minutes", "log.retention.hours"),
}


def broker_key(name: str) -> ConfigKey | None:
    """Return the definition of a name; None if Kafka has no such name.

    A listener's own key has the definition of its base key.
    """
    if name in BROKER_KEYS:
        return BROKER_KEYS[name]
    if name.startswith(PLUGIN_PREFIXES):
        # A plug-in's value may be a password: never shown.
        return ConfigKey(name, ConfigType.PASSWORD, None, None)
    if not name.startswith(_LISTENER_PREFIX):
        return None
    parts = name.split(".")[3:]
    base = BROKER_KEYS.get(".".join(parts)) or BROKER_KEYS.get(".".join(parts[1:]))
    return None if base is None else ConfigKey(name, base.type, None, base.rule, base.importance, base.mode)
