"""PEM texts: certificates and private keys between BEGIN and END lines.

    -----BEGIN CERTIFICATE-----
    MIIB...  (base64, in lines)
    -----END CERTIFICATE-----

A properties file contains them in one line, with spaces or nothing between the original lines. Blocks are therefore
reformatted with the lines that OpenSSL requires.
"""

from __future__ import annotations

import re
from typing import NamedTuple

_BLOCK = re.compile(r"-----BEGIN ([A-Z0-9 ]+)-----(.*?)-----END \1-----", re.DOTALL)
_LINE_CHARACTERS = 64
_CERTIFICATES = ("CERTIFICATE", "X509 CERTIFICATE", "TRUSTED CERTIFICATE")


class Pem(NamedTuple):
    """The blocks of a text, in order; each ends with a newline."""

    certificates: tuple[str, ...]
    keys: tuple[str, ...]

    def __repr__(self) -> str:
        return f"<{len(self.certificates)} certificates, {len(self.keys)} private keys>"


def parse(text: str) -> Pem:
    """Return a text's certificates and keys; other blocks and the text between blocks are ignored."""
    certificates, keys = [], []
    for label, body in _BLOCK.findall(text):
        if label in _CERTIFICATES:
            certificates.append(_block(label, body))
        elif label.endswith("PRIVATE KEY"):
            keys.append(_block(label, body))
    return Pem(tuple(certificates), tuple(keys))


def is_encrypted(key: str) -> bool:
    return "BEGIN ENCRYPTED PRIVATE KEY" in key or "Proc-Type: 4,ENCRYPTED" in key


def _block(label: str, body: str) -> str:
    if ":" in body:  # The older format of encrypted keys has headers, which must stay on their own lines.
        lines = body.strip()
    else:
        data = "".join(body.split())
        lines = "\n".join(data[at : at + _LINE_CHARACTERS] for at in range(0, len(data), _LINE_CHARACTERS))
    return f"-----BEGIN {label}-----\n{lines}\n-----END {label}-----\n"
