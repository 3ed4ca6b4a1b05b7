r"""The subject of a certificate as Kafka writes it: RFC 2253, as Java's X500Principal.getName().

    CN=client\, the first,OU=flights,O=Example,C=AT

The most specific part, which is the last in the certificate, comes first. Attributes without a name in RFC 2253 are
written as their number with the bytes of their value: 1.2.840.113549.1.9.1=#1603612e62. Python's own certificate parser
loses those bytes, so this module parses the certificate and skips the few fields before the subject.
"""

from __future__ import annotations

from collections.abc import Iterator

_WORDS = {
    "2.5.4.3": "CN",
    "2.5.4.6": "C",
    "2.5.4.7": "L",
    "2.5.4.8": "ST",
    "2.5.4.9": "STREET",
    "2.5.4.10": "O",
    "2.5.4.11": "OU",
    "0.9.2342.19200300.100.1.1": "UID",
    "0.9.2342.19200300.100.1.25": "DC",
}
_ESCAPED = ',=+<>#;"\\'
_VERSION_TAG = 0xA0
# UTF8String, PrintableString, T61String, IA5String, GeneralString, BMPString. Java reads the bytes of each as UTF-8.
# For a BMPString the result is not the intended name, but it is the name in ACLs.
_READ_AS_UTF_8 = frozenset({0x0C, 0x13, 0x14, 0x16, 0x1B, 0x1E})

Element = tuple[int, memoryview, memoryview]  # Tag, content, and the whole element including its length.


def distinguished_name(certificate: bytes) -> str:
    """Return the subject of a DER certificate that OpenSSL has accepted."""
    (_, outer, _) = next(_elements(memoryview(certificate)))
    (_, fields, _) = next(_elements(outer))
    parts = [part for part in _elements(fields) if part[0] != _VERSION_TAG]
    subject = parts[4][1]  # After serial number, algorithm, issuer and validity.
    names = [_relative(content) for _, content, _ in _elements(subject)]
    return ",".join(reversed(names))


def _relative(parts: memoryview) -> str:
    return "+".join(_attribute(content) for _, content, _ in _elements(parts))


def _attribute(content: memoryview) -> str:
    (_, number, _), (tag, value, whole) = _elements(content)
    dotted = _dotted(bytes(number))
    word = _WORDS.get(dotted)
    if word is None or tag not in _READ_AS_UTF_8:
        return f"{word or dotted}=#{bytes(whole).hex()}"
    return f"{word}={_escaped(bytes(value).decode('utf-8', 'replace'))}"


def _escaped(text: str) -> str:
    escaped = "".join(f"\\{character}" if character in _ESCAPED else character for character in text)
    escaped = escaped.replace("\0", "\\00")
    body = escaped.strip(" ")
    leading = len(escaped) - len(escaped.lstrip(" "))
    trailing = len(escaped) - leading - len(body)
    return "\\ " * leading + body + "\\ " * trailing


def _dotted(number: bytes) -> str:
    first, parts, value = True, [], 0
    for byte in number:
        value = value << 7 | byte & 0x7F
        if byte & 0x80:
            continue
        if first:
            top = min(value // 40, 2)
            parts += [top, value - 40 * top]
            first = False
        else:
            parts.append(value)
        value = 0
    return ".".join(map(str, parts))


def _elements(data: memoryview) -> Iterator[Element]:
    """Yield DER elements: tag, length, content; lengths from 128 on take additional bytes."""
    while data:
        size, at = data[1], 2
        if size & 0x80:
            at += size & 0x7F
            size = int.from_bytes(data[2:at], "big")
        yield data[0], data[at : at + size], data[: at + size]
        data = data[at + size :]
