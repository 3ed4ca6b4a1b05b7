"""Advice for a failed TLS handshake between a client and a broker."""

from __future__ import annotations

from odradek.app.doctor.peer_protocol import PLAIN_ADVICE
from odradek.client.connection.client_errors import TlsRefused

# The first entry whose words occur in the client's error is used (tls/failure_reasons.py).
_ADVICE = (
    (
        "does not match the address",
        "Use an address that is in the broker's certificate, or issue a certificate for {host}.",
    ),
    ("has expired", "Renew the expired certificate in the ssl.keystore.location file."),
    (
        "certificate is not trusted",
        "Set ssl.truststore.location to a file with the authority that issued the broker's certificate.",
    ),
    (
        "requires a client certificate",
        "Set ssl.keystore.location to a certificate from an authority in the broker's ssl.truststore.location.",
    ),
    (
        "rejected the client certificate",
        "Use a certificate from an authority in the broker's ssl.truststore.location; the broker's log has details.",
    ),
    ("does not use TLS", PLAIN_ADVICE),
)
_DEFAULT_ADVICE = "Compare ssl.enabled.protocols and ssl.cipher.suites with the broker's; the broker's log has details."


def tls_advice(refused: TlsRefused, host: str) -> str:
    """Return the advice. `host` is the name that the certificate was checked against."""
    text = str(refused)
    return next((advice for pattern, advice in _ADVICE if pattern in text), _DEFAULT_ADVICE).format(host=host)
