"""Settings of the connection to a ZooKeeper ensemble, parsed from a broker's zookeeper.* keys.

All keys are Kafka's except those for the user. A Java broker takes its user from system properties, which Odradek does
not have: -Djava.security.auth.login.config=FILE, -Dzookeeper.sasl.clientconfig=SECTION, -Dzookeeper.sasl.client. These
three names are therefore configuration keys here. The file is the same JAAS file, whose section Client has a
DigestLoginModule: the ensemble sees the same user, and the znode ACLs of Kafka and Odradek brokers admit each other.
For an ensemble without SASL there is odradek.zookeeper.auth=digest:USER:PASSWORD, ZooKeeper's own digest scheme, which
Kafka's brokers do not support.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import NamedTuple

from odradek.app.config.jaas import Module, read_jaas
from odradek.app.config.server_config import SESSION_MS
from odradek.app.config.zookeeper_tls import CLIENT_ENABLE, KEYSTORE, parse_zookeeper_tls
from odradek.base.extras import absent, not_installed
from odradek.base.secret import Secret
from odradek.coordination.tree import BadArguments, Tree, check_path
from odradek.coordination.zookeeper_access import Access, Credentials, Scheme
from odradek.core.configs.broker_configs import BrokerConfigs
from odradek.core.configs.definition import ConfigError

CONNECT = "zookeeper.connect"
CONNECTION_MS = "zookeeper.connection.timeout.ms"
SET_ACL = "zookeeper.set.acl"
JAAS_FILE, JAAS_SECTION = "java.security.auth.login.config", "zookeeper.sasl.clientconfig"
SASL = "zookeeper.sasl.client"
AUTH = "odradek.zookeeper.auth"

DIGEST_MODULE = "org.apache.zookeeper.server.auth.DigestLoginModule"
_SERVER = re.compile(r"(\[[0-9a-fA-F:.]+\]|[^\s/:,\[\]]+)(:(\d{1,5}))?")
_PORT_MAX = 65_535


class ZooKeeperSettings(NamedTuple):
    """Settings for opening a tree on an ensemble; times in ms."""

    connect: str
    session_timeout_ms: int
    connection_timeout_ms: int
    reads_in_flight: int
    access: Access

    def open(self, *, makes_chroot: bool) -> Tree:
        """Open the tree. Raise the errors of open_zookeeper."""
        from odradek.coordination.zookeeper import open_zookeeper

        return open_zookeeper(
            self.connect,
            session_timeout_ms=self.session_timeout_ms,
            connection_timeout_ms=self.connection_timeout_ms,
            makes_chroot=makes_chroot,
            access=self.access,
            reads_in_flight=self.reads_in_flight,
        )


def open_tree(configs: BrokerConfigs) -> Tree:
    """Open the tree at zookeeper.connect, and create a missing chroot as Kafka's brokers do.

    Raise ConfigError for an invalid configuration, and Unavailable.
    """
    return zookeeper_settings(configs).open(makes_chroot=True)


def zookeeper_settings(configs: BrokerConfigs) -> ZooKeeperSettings:
    """Return the parsed settings. Raise ConfigError.

    Read the stores and the JAAS file, but do not connect.
    """
    if missing := absent("kazoo"):
        raise ConfigError(f"{CONNECT} is set, but {not_installed(missing, 'zookeeper')}")
    session_timeout_ms = _timeout(configs, SESSION_MS)
    is_given = configs.optional_int(CONNECTION_MS) is not None
    return ZooKeeperSettings(
        connect=_connect(configs.optional_str(CONNECT) or ""),
        session_timeout_ms=session_timeout_ms,
        connection_timeout_ms=_timeout(configs, CONNECTION_MS) if is_given else session_timeout_ms,
        reads_in_flight=configs.int("zookeeper.max.in.flight.requests"),
        access=_access(configs),
    )


def _timeout(configs: BrokerConfigs, name: str) -> int:
    value = configs.int(name)
    if value < 1:
        raise ConfigError(f"Invalid value {value} for configuration {name}: it must be at least 1.")
    return value


def _connect(text: str) -> str:
    """Return zookeeper.connect after checking it."""
    servers, slash, chroot = text.strip().partition("/")
    for server in servers.split(","):
        if not _is_server(server.strip()):
            what = f"{server.strip()!r} is not host:port" if servers else "it contains no server"
            raise ConfigError(f"{CONNECT} must be host:port,host:port/chroot, but {what}.")
    if chroot:
        try:
            check_path(slash + chroot)
        except BadArguments as error:
            raise ConfigError(f"Invalid chroot in {CONNECT}: {error}.") from None
    return ",".join(server.strip() for server in servers.split(",")) + (slash + chroot if chroot else "")


def _is_server(text: str) -> bool:
    match = _SERVER.fullmatch(text)
    try:
        return match is not None and 0 < int(match[3] or 1) <= _PORT_MAX and bool(match[1].encode("idna"))
    except UnicodeError:  # A part of the name is empty or too long.
        return False


def _access(configs: BrokerConfigs) -> Access:
    access = Access(parse_zookeeper_tls(configs), _credentials(configs), configs.bool(SET_ACL))
    has_certificate = access.tls is not None and configs.optional_str(KEYSTORE)
    if access.sets_acls and access.credentials is None and not has_certificate:
        file = configs.optional_str(JAAS_FILE)
        absent_section = f" ({file} has no section {_section(configs)})" if file else ""
        raise ConfigError(
            f"{SET_ACL} is true, but this broker does not authenticate, so it could not change its znodes: set "
            f"{JAAS_FILE}{absent_section}, {AUTH}, or {CLIENT_ENABLE} with {KEYSTORE}."
        )
    return access


def _credentials(configs: BrokerConfigs) -> Credentials | None:
    sasl, digest = _sasl(configs), _digest(configs.secret(AUTH))
    if sasl is not None and digest is not None:
        raise ConfigError(f"{AUTH} and {JAAS_FILE} both set this broker's identity at ZooKeeper: remove one of them.")
    if sasl is not None and (missing := absent("puresasl")):
        raise ConfigError(f"{JAAS_FILE} is set, but {not_installed(missing, 'zookeeper')}")
    return sasl or digest


def _sasl(configs: BrokerConfigs) -> Credentials | None:
    """Return the user of the JAAS file, or None if there is no file or no such section, as in Kafka."""
    file = configs.optional_str(JAAS_FILE)
    if not file:
        return None
    section = _section(configs)
    modules = read_jaas(Path(file)).get(section)
    if not modules:
        return None
    if not configs.bool(SASL):
        raise ConfigError(f"{SASL} is false, but {file} has a section {section}: remove one of them.")
    return _user_of(modules[0], f"Section {section} of {file}")


def _section(configs: BrokerConfigs) -> str:
    return configs.optional_str(JAAS_SECTION) or "Client"


def _user_of(module: Module, where: str) -> Credentials:
    if module.class_name != DIGEST_MODULE:
        raise ConfigError(f"{where} has the unsupported login module {module.class_name}: use {DIGEST_MODULE}.")
    missing = [name for name in ("username", "password") if not module.options.get(name)]
    if missing:
        raise ConfigError(f"{where} has no {' and no '.join(missing)}.")
    return Credentials(Scheme.SASL, module.options["username"], Secret(module.options["password"]))


def _digest(secret: Secret | None) -> Credentials | None:
    if secret is None or not secret.reveal():
        return None
    scheme, _, rest = secret.reveal().partition(":")
    user, separator, password = rest.partition(":")
    if scheme != Scheme.DIGEST.value or not (user and separator and password):
        raise ConfigError(f"{AUTH} must be digest:USER:PASSWORD.")
    return Credentials(Scheme.DIGEST, user, Secret(password))
