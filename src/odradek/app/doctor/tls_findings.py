"""Advice for a failed TLS handshake between a client and a broker."""

from __future__ import annotations

from odradek.app.doctor.speech import PLAIN_ADVICE
from odradek.client.connection.client_errors import TlsRefused

# The first entry whose words occur in the client's error is used (tls/reasons.py).
_ADVICE = (
    (
        "is not for this address",
        "Give an address that is in the broker's certificate, or have one made that names {host}.",
    ),
    ("has expired", "Renew the certificate that has expired, in the file that ssl.keystore.location names."),
    (
        "certificate is not trusted",
        "Let ssl.truststore.location name a file with the certificate of the authority that issued the broker's.",
    ),
    (
        "wants a certificate of its clients",
        "Add ssl.keystore.location, with a certificate from an authority in the broker's ssl.truststore.location.",
    ),
    (
        "refused the certificate of this client",
        "Give a certificate from an authority in the broker's ssl.truststore.location; the broker's log says more.",
    ),
    ("does not speak TLS", PLAIN_ADVICE),
)
_OTHERWISE = "Compare ssl.enabled.protocols and ssl.cipher.suites with the broker's; the broker's log says more."


def tls_advice(refused: TlsRefused, host: str) -> str:
    """Return the advice. `host` is the name that the certificate was checked against."""
    text = str(refused)
    return next((advice for words, advice in _ADVICE if words in text), _OTHERWISE).format(host=host)
