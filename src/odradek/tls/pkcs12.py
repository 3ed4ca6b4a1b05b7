"""PKCS12 stores, the standard format of Java's keytool and of OpenSSL.

The library cryptography reads them. It is imported only when a store is read: PEM requires only Python.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from odradek.base.extras import not_installed
from odradek.base.secret import Secret
from odradek.tls.pem import Pem
from odradek.tls.tls_errors import TlsConfigError

if TYPE_CHECKING:
    from cryptography.x509 import Certificate


def parse(data: bytes, password: Secret | None, where: str, password_key: str) -> Pem:
    """Return the first key, its certificate with the chain, then all others, or raise TlsConfigError."""
    try:
        from cryptography.exceptions import UnsupportedAlgorithm
        from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
        from cryptography.hazmat.primitives.serialization.pkcs12 import load_pkcs12
    except ModuleNotFoundError:
        raise TlsConfigError(f"{where} is a PKCS12 store, and {not_installed(['cryptography'], 'tls')}") from None
    try:
        store = load_pkcs12(data, None if password is None else password.reveal().encode())
    except UnsupportedAlgorithm:
        raise TlsConfigError(
            f"{where} uses an unsupported encryption: create it again with a newer keytool or openssl."
        ) from None
    except ValueError:
        # The library's own text contains no more information, and must not.
        problem = f"{password_key} does not open {where}" if password else f"{where} requires a password"
        advice = "" if password else f", set {password_key}"
        raise TlsConfigError(f"{problem}{advice}, or it is not a PKCS12 store.") from None
    others = [entry.certificate for entry in store.additional_certs]
    own = [] if store.cert is None else _chain(store.cert.certificate, others)
    certificates = own + [certificate for certificate in others if certificate not in own]
    keys = []
    if store.key is not None:
        keys.append(store.key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()).decode())
    return Pem(tuple(certificate.public_bytes(Encoding.PEM).decode() for certificate in certificates), tuple(keys))


def _chain(leaf: Certificate, others: Iterable[Certificate]) -> list[Certificate]:
    """Return the chain in handshake order: the leaf, its issuer, and so on; a store may have any order."""
    by_subject = {certificate.subject: certificate for certificate in others}
    chain = [leaf]
    while (issuer := by_subject.get(chain[-1].issuer)) is not None and issuer not in chain:
        chain.append(issuer)
    return chain
