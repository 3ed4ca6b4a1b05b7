"""Passwords in the encrypted format of Apache Kafka: encoding, decoding, and errors that reveal nothing."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis.strategies import text

from odradek.base.secret import Secret
from odradek.coordination.passwords import CannotEncode, PasswordEncoder

SECRET = Secret("the-encoder-secret")
# A password that Apache Kafka 3.9.1 encrypted, and its plain text.
BY_KAFKA = (
    "initializationVector:HlXWyr9f6YQDnVXpSsjLAQ==,keyLength:128,salt:OrOclmYkwTIdoDL3A3045M0DhRD8nqTtTgd"
    "QM8Ahz+GzhayrCSq+VH4wiGdYzW9K/icTjJX1w6L5jalllnrXh8Jw12RuawKt8YimIe/kbp9m9zs6HsbMAltwXuK8fXodSAb27V0"
    "AVWwtTqNjeun81MeSbXw1ZwdYMxfayDkcaLpLm1E4zzAR6W+/9WtFEkpMiUM9ImYXtlni7hAgOFJDSVVXh5HarhiLDEMWBYo4T0s"
    "2tJPHPw6qEi2NKjD5xhCZcERVnnNVzmQgkhESOyjFMyG3X++jqShmjy45fOQ/D0N9SNGdDMcqvdkKKpCfm4a/Qk4LKQXiVK1SsZN"
    "nbMxh7w==,keyFactoryAlgorithm:PBKDF2WithHmacSHA512,cipherAlgorithm:AES/CBC/PKCS5Padding,iterations:4"
    "096,passwordLength:14,encryptedPassword:WKNbip32tFKiofR8I7bTkw=="
)
PASSWORD = "känguru, 7:8=9"


def test_a_password_of_apache_kafka_is_read() -> None:
    assert PasswordEncoder(SECRET).decode(BY_KAFKA) == PASSWORD


@given(text(max_size=200))
def test_encoded_password_is_decoded_unchanged(password: str) -> None:
    try:
        password.encode()
    except UnicodeEncodeError:
        return
    encoder = PasswordEncoder(SECRET, iterations=1024, key_bits=256, key_factory="PBKDF2WithHmacSHA256")
    encoded = encoder.encode(password)
    assert encoder.decode(encoded) == password
    assert PasswordEncoder(Secret("new"), SECRET).decode(encoded) == password, "the secret may be changed"


def test_each_encoding_of_a_password_is_different() -> None:
    encoder = PasswordEncoder(SECRET)
    assert encoder.encode(PASSWORD) != encoder.encode(PASSWORD)


@pytest.mark.parametrize("encoder", [PasswordEncoder(None), PasswordEncoder(Secret("another"))])
def test_decoding_requires_the_right_secret(encoder: PasswordEncoder) -> None:
    with pytest.raises(CannotEncode) as failed:
        encoder.decode(BY_KAFKA)
    assert PASSWORD not in str(failed.value) and "WKNbip32" not in str(failed.value)


def test_encoding_requires_a_secret() -> None:
    with pytest.raises(CannotEncode, match="Password encoder secret not configured"):
        PasswordEncoder(None).encode(PASSWORD)


def test_unsupported_cipher_is_refused() -> None:
    with pytest.raises(CannotEncode, match="AES/CBC"):
        PasswordEncoder(SECRET, cipher="DES").encode(PASSWORD)


@given(text(max_size=300))
def test_arbitrary_text_is_refused(given_text: str) -> None:
    with pytest.raises(CannotEncode):
        PasswordEncoder(SECRET).decode(given_text)


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("iterations:4096", "iterations:99999999999"),
        ("keyLength:128", "keyLength:7"),
        ("CBC", "ECB"),
        ("SHA512", "MD5"),
    ],
)
def test_damaged_password_is_refused(before: str, after: str) -> None:
    assert before in BY_KAFKA
    with pytest.raises(CannotEncode):
        PasswordEncoder(SECRET).decode(BY_KAFKA.replace(before, after))
