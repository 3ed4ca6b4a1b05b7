"""Certificates and keys of configured stores, as PEM.

The first bytes determine the format of a file, because Java also reads PKCS12 stores with the type JKS. The JKS format
itself is specific to Java and is rejected with the command that converts it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from odradek.base.secret import Secret
from odradek.tls import pem, pkcs12
from odradek.tls.pem import Pem
from odradek.tls.tls_config import Store, TlsConfig
from odradek.tls.tls_errors import TlsConfigError

_JKS_MAGIC = (b"\xfe\xed\xfe\xed", b"\xce\xce\xce\xce")  # JKS, JCEKS.
_DER_SEQUENCE = 0x30


@dataclass(frozen=True, slots=True)
class Identity:
    """A certificate with its chain, and its private key, as one PEM text each."""

    chain: str
    key: str = field(repr=False)
    key_password: Secret | None
    where: str  # For error messages.


def identity(config: TlsConfig) -> Identity | None:
    """Return this side's certificate and key, or None without a keystore, or raise TlsConfigError."""
    store = config.keystore
    if not store.is_given:
        return None
    if store.key is not None and store.certificates is not None:
        where = config.named("ssl.keystore.certificate.chain")
        found = Pem(pem.parse(store.certificates.reveal()).certificates, pem.parse(store.key.reveal()).keys)
        missing_key_where = config.named("ssl.keystore.key")
    else:
        where = missing_key_where = _where(config, store)
        found = _read(config, store)
    if not found.keys:
        raise TlsConfigError(f"{missing_key_where} contains no private key.")
    if not found.certificates:
        raise TlsConfigError(f"{where} contains no certificate.")
    key = found.keys[0]
    if pem.is_encrypted(key) and store.key_password is None:
        raise TlsConfigError(f"The private key in {missing_key_where} is encrypted: set ssl.key.password.")
    return Identity("".join(found.certificates), key, store.key_password, where)


def trusted(config: TlsConfig) -> str | None:
    """Return the trusted certificates, or None without a truststore, or raise TlsConfigError."""
    store = config.truststore
    if not store.is_given:
        return None
    if store.certificates is not None:
        where = config.named("ssl.truststore.certificates")
        found = pem.parse(store.certificates.reveal())
    else:
        where = _where(config, store)
        found = _read(config, store)
    if not found.certificates:
        raise TlsConfigError(f"{where} contains no certificate.")
    return "".join(found.certificates)


def _where(config: TlsConfig, store: Store) -> str:
    return f"{config.named(f'ssl.{store.kind}.location')} {store.location}"


def _read(config: TlsConfig, store: Store) -> Pem:
    assert store.location is not None, "PEM texts have no file"
    where = _where(config, store)
    try:
        data = Path(store.location).read_bytes()
    except OSError as error:
        raise TlsConfigError(f"Failed to read {where}: {(error.strerror or str(error)).lower()}.") from None
    if data.startswith(_JKS_MAGIC):
        target = str(Path(store.location).with_suffix(".p12"))
        raise TlsConfigError(
            f"{where} is a JKS store, which is not supported; convert it with: keytool -importkeystore -srckeystore "
            f"{store.location} -srcstoretype JKS -destkeystore {target} -deststoretype PKCS12"
        )
    is_pkcs12 = data[:1] == bytes([_DER_SEQUENCE])
    if store.type == "PEM":
        if is_pkcs12:
            raise TlsConfigError(f"{where} is not a PEM file: set {config.named(f'ssl.{store.kind}.type')}=PKCS12.")
        return pem.parse(data.decode("latin-1"))
    if not is_pkcs12:
        advice = f": set {config.named(f'ssl.{store.kind}.type')}=PEM" if b"-----BEGIN " in data else ""
        raise TlsConfigError(f"{where} is not a PKCS12 store{advice}.")
    return pkcs12.parse(data, store.password, where, config.named(f"ssl.{store.kind}.password"))
