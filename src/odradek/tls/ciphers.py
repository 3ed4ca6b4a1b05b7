"""Cipher suites of ssl.cipher.suites: standard names as in Java, converted to OpenSSL's names.

OpenSSL has its own names for TLS 1.2:

TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384   ECDHE-RSA-AES256-GCM-SHA384
TLS_AES_256_GCM_SHA384                  the same; a suite of TLS 1.3
"""

from __future__ import annotations

import re
import ssl
from collections.abc import Sequence
from functools import cache

from odradek.tls.tls_config import TlsConfig
from odradek.tls.tls_errors import TlsConfigError

KEY = "ssl.cipher.suites"
_TLS_13 = "TLSv1.3"


def choose(context: ssl.SSLContext, config: TlsConfig) -> None:
    """Set the cipher suites; raise TlsConfigError for unknown ones and for a subset of those of TLS 1.3.

    A protocol without any suite in the list is disabled; otherwise it would be available with all of its suites.
    """
    suites = config.cipher_suites
    if not suites:
        return
    of_13 = _of_tls_13()
    newer = [suite for suite in suites if suite in of_13]
    older = [_openssl_name(config, suite) for suite in suites if suite not in of_13]
    if newer and set(newer) != of_13 and context.maximum_version != ssl.TLSVersion.TLSv1_2:
        # Python before 3.15 has no function for it.
        raise TlsConfigError(
            f"{config.named(KEY)} contains only some of the TLS 1.3 suites, which is not supported: use all "
            f"of {', '.join(sorted(of_13))}, or none."
        )
    if older:
        context.set_ciphers(":".join(older))
    if not newer:
        _limit_version(context, config, "maximum_version", ssl.TLSVersion.TLSv1_2)
    if not older:
        _limit_version(context, config, "minimum_version", ssl.TLSVersion.TLSv1_3)


def _limit_version(context: ssl.SSLContext, config: TlsConfig, bound: str, version: ssl.TLSVersion) -> None:
    setattr(context, bound, version)
    if context.minimum_version > context.maximum_version:
        raise TlsConfigError(f"{config.named(KEY)} contains no cipher suite of {', '.join(config.enabled_protocols)}.")


@cache
def _of_tls_13() -> frozenset[str]:
    return frozenset(cipher["name"] for cipher in _all() if cipher["protocol"] == _TLS_13)


@cache
def _of_tls_12() -> frozenset[str]:
    return frozenset(cipher["name"] for cipher in _all() if cipher["protocol"] != _TLS_13)


@cache
def _all() -> Sequence[ssl._Cipher]:
    return ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).get_ciphers()


def _openssl_name(config: TlsConfig, suite: str) -> str:
    name = suite.removeprefix("TLS_").replace("_WITH_", "_").removeprefix("RSA_")
    name = re.sub(r"AES_(\d+)", r"AES\1", name).replace("_CBC_", "_").replace("POLY1305_SHA256", "POLY1305")
    name = name.replace("_", "-")
    if not suite.startswith("TLS_") or name not in _of_tls_12():
        raise TlsConfigError(f"{config.named(KEY)} contains {suite!r}, which is unknown or too weak.")
    return name
