"""Names as Java writes them: the right column is what Java 17's X500Principal.getName() printed for the left."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding
from cryptography.x509.name import _ASN1Type
from cryptography.x509.oid import NameOID

from odradek.tls.principal import distinguished_name

CN, C, OU = NameOID.COMMON_NAME, NameOID.COUNTRY_NAME, NameOID.ORGANIZATIONAL_UNIT_NAME
ORG = NameOID.ORGANIZATION_NAME
KEY = ec.generate_private_key(ec.SECP256R1())


def certificate(relative_names: list[list[tuple[x509.ObjectIdentifier, str]]]) -> bytes:
    name = x509.Name(
        x509.RelativeDistinguishedName(x509.NameAttribute(kind, value) for kind, value in each)
        for each in relative_names
    )
    return _certificate(name)


def _certificate(name: x509.Name) -> bytes:
    begin, end = datetime(2026, 1, 1, tzinfo=UTC), datetime(2027, 1, 1, tzinfo=UTC)
    builder = x509.CertificateBuilder(name, name, KEY.public_key(), 5, begin, end)
    return builder.sign(KEY, hashes.SHA256()).public_bytes(Encoding.DER)


@pytest.mark.parametrize(
    ("names", "written"),
    [
        (
            [[(C, "AT")], [(ORG, 'Ex, "am"+ple')], [(OU, "flights")], [(CN, "client one")]],
            r"CN=client one,OU=flights,O=Ex\, \"am\"\+ple,C=AT",
        ),
        (
            [[(CN, " lead <a>;b=c\\ ")], [(NameOID.EMAIL_ADDRESS, "a.b@example.org")]],
            r"1.2.840.113549.1.9.1=#160f612e62406578616d706c652e6f7267,CN=\ lead \<a\>\;b\=c\\\ ",
        ),
        (
            [
                [(CN, "#hash"), (NameOID.USER_ID, "u1")],
                [(NameOID.DOMAIN_COMPONENT, "example")],
                [(NameOID.STREET_ADDRESS, "Gasse 1")],
                [(NameOID.SERIAL_NUMBER, "42")],
                [(NameOID.TITLE, "Dr")],
            ],
            r"2.5.4.12=#0c024472,2.5.4.5=#13023432,STREET=Gasse 1,DC=example,CN=\#hash+UID=u1",
        ),
        (
            [
                [(NameOID.LOCALITY_NAME, "Zürich ✈")],
                [(NameOID.STATE_OR_PROVINCE_NAME, "ZH")],
                [(NameOID.SURNAME, "Samsa")],
                [(CN, "日本")],
            ],
            "CN=日本,2.5.4.4=#0c0553616d7361,ST=ZH,L=Zürich ✈",
        ),
        ([[(CN, "a  b#c")]], r"CN=a  b\#c"),
        ([[(CN, "x" * 64)], [(ORG, "y" * 64)], [(OU, "z" * 64)]], f"OU={'z' * 64},O={'y' * 64},CN={'x' * 64}"),
    ],
)
def test_name_is_written_as_in_java(names: list[list[tuple[x509.ObjectIdentifier, str]]], written: str) -> None:
    assert distinguished_name(certificate(names)) == written


@pytest.mark.parametrize(
    ("kind", "written"),
    [
        ("UTF8String", "CN=ü"),
        ("T61String", "CN=ü"),  # Java takes its bytes for UTF-8, which here they are,
        ("BMPString", r"CN=\00�"),  # and here not.
        ("UniversalString", "CN=#1c04000000fc"),
        ("VisibleString", "CN=#1a02c3bc"),
    ],
)
def test_value_of_each_kind_is_read_as_in_java(kind: str, written: str) -> None:
    name = x509.NameAttribute(CN, "ü", _ASN1Type[kind])
    assert distinguished_name(_certificate(x509.Name([name]))) == written


def test_empty_subject_has_an_empty_name() -> None:
    assert distinguished_name(certificate([])) == ""
