"""Reasons for a failed TLS handshake, in words for a log line or for the user of a client.

OpenSSL names the detected error, but the side that must change something depends on the side that detected it. The
other side sends an alert to describe its objection.
"""

from __future__ import annotations

import ssl
from typing import NamedTuple

# OpenSSL's error names for a first record that is not TLS.
_NO_TLS = frozenset(
    {"WRONG_VERSION_NUMBER", "HTTP_REQUEST", "HTTPS_PROXY_REQUEST", "UNKNOWN_PROTOCOL", "PACKET_LENGTH_TOO_LONG"}
)
_NOTHING_COMMON = {
    "NO_SHARED_CIPHER": "no cipher suite is enabled on both sides",
    "UNSUPPORTED_PROTOCOL": "no version of TLS is enabled on both sides",
    "VERSION_TOO_LOW": "no version of TLS is enabled on both sides",
    "TLSV1_ALERT_PROTOCOL_VERSION": "no version of TLS is enabled on both sides",
    "SSLV3_ALERT_HANDSHAKE_FAILURE": "the peer found no TLS version, cipher suite or certificate that both accept",
    "NO_SUITABLE_SIGNATURE_ALGORITHM": "no signature algorithm is enabled on both sides",
}
_REQUIRES_CERTIFICATE = frozenset({"TLSV13_ALERT_CERTIFICATE_REQUIRED", "PEER_DID_NOT_RETURN_A_CERTIFICATE"})
# The other side's objections to our certificate.
_VERDICTS = {
    "TLSV1_ALERT_UNKNOWN_CA": "unknown certificate authority",
    "SSLV3_ALERT_CERTIFICATE_UNKNOWN": "certificate not accepted",
    "SSLV3_ALERT_CERTIFICATE_EXPIRED": "certificate has expired",
    "SSLV3_ALERT_CERTIFICATE_REVOKED": "certificate was revoked",
    "SSLV3_ALERT_UNSUPPORTED_CERTIFICATE": "unsupported certificate type",
    "SSLV3_ALERT_BAD_CERTIFICATE": "certificate not accepted",
    "TLSV1_ALERT_DECRYPT_ERROR": "invalid signature",
    "TLSV1_ALERT_ACCESS_DENIED": "access denied",
}
_WRONG_HOST = (62, 64)  # OpenSSL's codes for a mismatched host name and IP address; only a client checks them.


class _Side(NamedTuple):
    """Texts of one side about the other, if the two sides differ."""

    not_trusted: str
    no_certificate: str
    refused: str


# A server's log describes the client; a client's user reads about the connection to the broker.
_SERVER = _Side(
    not_trusted="the client's certificate is not trusted",
    no_certificate="the client sent no certificate, but ssl.client.auth is required",
    refused="the client rejected this broker's certificate",
)


def of(error: ssl.SSLError, *, is_server: bool, server: str = "the broker", prefix: str = "") -> str:
    """Return the reason, in the words of the side that detected the error.

    A client's text names the server, and its ssl.* keys with the user's prefix.
    """
    side = _SERVER if is_server else _client(server, prefix)
    if isinstance(error, ssl.SSLCertVerificationError):
        if error.verify_code in _WRONG_HOST:
            return f"{server}'s certificate does not match the address: {_verdict(error)}"
        return f"{side.not_trusted}: {_verdict(error)}"
    reason = error.reason or ""
    if reason in _REQUIRES_CERTIFICATE:
        return side.no_certificate
    if reason in _NO_TLS:
        return "the peer does not use TLS"
    if reason in _VERDICTS:
        return f"{side.refused}: {_VERDICTS[reason]}"
    return _NOTHING_COMMON.get(reason) or _other_reason(error)


def is_final(error: ssl.SSLError) -> bool:
    """Return whether only a different configuration or certificate can help."""
    known = _REQUIRES_CERTIFICATE | _NO_TLS | _VERDICTS.keys() | _NOTHING_COMMON.keys()
    return isinstance(error, ssl.SSLCertVerificationError) or error.reason in known


def _client(server: str, prefix: str) -> _Side:
    return _Side(
        not_trusted=f"{server}'s certificate is not trusted",
        no_certificate=f"{server} requires a client certificate: set {prefix}ssl.keystore.location",
        refused=f"{server} rejected the client certificate",
    )


def _verdict(error: ssl.SSLCertVerificationError) -> str:
    text = error.verify_message.rstrip(".")
    if "certificate is not valid for" in text:  # "Hostname mismatch, certificate is not valid for 'name'"
        return text.partition(", ")[2] or text
    return text


def _other_reason(error: ssl.SSLError) -> str:
    return (error.reason or "").lower().replace("_", " ") or "the peer closed the connection"
