"""Certificates for tests: an authority, identities that it signs, and stores of every kind."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import trustme
from cryptography import x509
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_pem_private_key,
    pkcs12,
)

PASSWORD = "s3cret-of-the-store"
LONG_AGO = datetime(2001, 1, 1, tzinfo=UTC)


@dataclass(frozen=True)
class Known:
    """An identity with a certificate, as PEM texts."""

    chain: str
    key: str

    @property
    def pem(self) -> str:
        return self.chain + self.key

    def encrypted_key(self, password: str = PASSWORD) -> str:
        return self._key_as(PrivateFormat.PKCS8, password)

    def old_encrypted_key(self, password: str = PASSWORD) -> str:
        """Return the key in the older format, with headers."""
        return self._key_as(PrivateFormat.TraditionalOpenSSL, password)

    def pkcs8_key(self) -> str:
        """Return the key in the format that Java requires."""
        key = load_pem_private_key(self.key.encode(), None)
        return key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()).decode()

    def _key_as(self, format_: PrivateFormat, password: str) -> str:
        key = load_pem_private_key(self.key.encode(), None)
        return key.private_bytes(Encoding.PEM, format_, BestAvailableEncryption(password.encode())).decode()

    def pkcs12(self, password: str | None = PASSWORD) -> bytes:
        chain = x509.load_pem_x509_certificates(self.chain.encode())
        encryption = NoEncryption() if password is None else BestAvailableEncryption(password.encode())
        key = load_pem_private_key(self.key.encode(), None)
        return pkcs12.serialize_key_and_certificates(b"me", key, chain[0], chain[:0:-1], encryption)  # type: ignore[arg-type]


class Authority:
    """A certificate authority. `between` adds an intermediate authority between it and its identities."""

    def __init__(self, *, between: bool = False) -> None:
        self._root = trustme.CA()
        self._issuer = self._root.create_child_ca() if between else self._root
        self.pem = self._root.cert_pem.bytes().decode()

    def known(self, *names: str, common_name: str | None = None, expired: bool = False) -> Known:
        leaf = self._issuer.issue_cert(
            *(names or ("localhost", "127.0.0.1")),
            common_name=common_name,
            organization_name="Odradek",
            not_before=LONG_AGO if expired else None,
            not_after=LONG_AGO.replace(year=2002) if expired else None,
        )
        return Known(
            "".join(blob.bytes().decode() for blob in leaf.cert_chain_pems), leaf.private_key_pem.bytes().decode()
        )

    def pkcs12(self, password: str | None = PASSWORD) -> bytes:
        """Return a truststore that Java accepts, as its keytool writes it."""
        encryption = NoEncryption() if password is None else BestAvailableEncryption(password.encode())
        certificate = x509.load_pem_x509_certificate(self.pem.encode())
        return pkcs12.serialize_java_truststore([pkcs12.PKCS12Certificate(certificate, b"root")], encryption)


def written(path: Path, content: str | bytes) -> str:
    """Write the content and return the path as text."""
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return str(path)
