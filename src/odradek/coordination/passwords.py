"""Passwords in znodes, encrypted as in Kafka (KIP-226) with a key from password.encoder.secret.

    cipherAlgorithm:AES/CBC/PKCS5Padding,encryptedPassword:...,initializationVector:...,iterations:4096,
    keyFactoryAlgorithm:PBKDF2WithHmacSHA512,keyLength:128,passwordLength:8,salt:...

Bytes are in base64. The cipher comes from the library cryptography, which is imported when first needed.
"""

from __future__ import annotations

import base64
import hashlib
import os
from collections.abc import Mapping

from odradek.base.extras import not_installed
from odradek.base.secret import Secret

CIPHER = "AES/CBC/PKCS5Padding"
KEY_FACTORY, HASHES = "PBKDF2WithHmacSHA512", {f"PBKDF2WithHmacSHA{bits}": f"sha{bits}" for bits in (1, 256, 384, 512)}
BLOCK_BYTES, SALT_BYTES = 16, 32
KEY_BITS = (128, 192, 256)
ITERATIONS_MAX = 10_000_000  # A limit for a znode that any client may have written: some seconds.


class CannotEncode(ValueError):
    """A password that can't be encrypted or decrypted; the text is one sentence for the user."""


class PasswordEncoder:
    """Encryption with the secret, and decryption with the secret or the previous one."""

    def __init__(
        self,
        secret: Secret | None,
        old_secret: Secret | None = None,
        *,
        iterations: int = 4096,
        key_bits: int = 128,
        key_factory: str | None = None,
        cipher: str = CIPHER,
    ) -> None:
        self._secret = secret
        self._old_secret = old_secret
        self._iterations = iterations
        self._key_bits = key_bits
        self._key_factory = key_factory or KEY_FACTORY
        self._cipher = cipher

    def encode(self, password: str) -> str:
        """Return the password in the form of a znode, or raise CannotEncode."""
        if self._secret is None:
            raise CannotEncode("Password encoder secret not configured: password.encoder.secret must be set.")
        if self._cipher != CIPHER or self._key_factory not in HASHES or self._key_bits not in KEY_BITS:
            raise CannotEncode(
                f"Unsupported password.encoder.* algorithm: only {CIPHER} with {KEY_FACTORY} is supported."
            )
        salt, start, plain = os.urandom(SALT_BYTES), os.urandom(BLOCK_BYTES), password.encode()
        key = _key(self._secret, self._key_factory, salt, self._iterations, self._key_bits)
        fields = {
            "cipherAlgorithm": CIPHER,
            "encryptedPassword": _text(_ciphered(key, start, plain, encrypts=True)),
            "initializationVector": _text(start),
            "iterations": str(self._iterations),
            "keyFactoryAlgorithm": self._key_factory,
            "keyLength": str(self._key_bits),
            "passwordLength": str(len(password)),
            "salt": _text(salt),
        }
        return ",".join(f"{name}:{value}" for name, value in fields.items())

    def decode(self, text: str) -> str:
        """Return the password, or raise CannotEncode, which does not reveal the text."""
        for secret in (self._secret, self._old_secret):
            if secret is not None:
                try:
                    return _decoded(dict(part.split(":", 1) for part in text.split(",")), secret)
                except (ValueError, KeyError):
                    continue
        raise CannotEncode("Failed to decrypt the value with password.encoder.secret.")


def _decoded(fields: Mapping[str, str], secret: Secret) -> str:
    iterations, key_bits = int(fields["iterations"]), int(fields["keyLength"])
    if fields["cipherAlgorithm"] != CIPHER or not 0 < iterations <= ITERATIONS_MAX or key_bits not in KEY_BITS:
        raise ValueError(fields["cipherAlgorithm"])
    key = _key(secret, fields["keyFactoryAlgorithm"], _bytes(fields["salt"]), iterations, key_bits)
    start, encrypted = _bytes(fields["initializationVector"]), _bytes(fields["encryptedPassword"])
    password = _ciphered(key, start, encrypted, encrypts=False).decode()
    if len(password) != int(fields["passwordLength"]):
        raise ValueError("wrong length")  # The wrong key: its padding is valid by chance once in 256 times.
    return password


def _key(secret: Secret, factory: str, salt: bytes, iterations: int, key_bits: int) -> bytes:
    return hashlib.pbkdf2_hmac(HASHES[factory], secret.reveal().encode(), salt, iterations, key_bits // 8)


def _ciphered(key: bytes, start: bytes, data: bytes, *, encrypts: bool) -> bytes:
    try:
        from cryptography.hazmat.primitives.ciphers import Cipher
        from cryptography.hazmat.primitives.ciphers.algorithms import AES
        from cryptography.hazmat.primitives.ciphers.modes import CBC
        from cryptography.hazmat.primitives.padding import PKCS7
    except ModuleNotFoundError:
        raise CannotEncode(f"Passwords are stored encrypted, and {not_installed(['cryptography'], 'tls')}") from None
    cipher, padding = Cipher(AES(key), CBC(start)), PKCS7(BLOCK_BYTES * 8)
    if encrypts:
        padder, encryptor = padding.padder(), cipher.encryptor()
        return encryptor.update(padder.update(data) + padder.finalize()) + encryptor.finalize()
    unpadder, decryptor = padding.unpadder(), cipher.decryptor()
    return unpadder.update(decryptor.update(data) + decryptor.finalize()) + unpadder.finalize()


def _text(data: bytes) -> str:
    return base64.b64encode(data).decode()


def _bytes(text: str) -> bytes:
    return base64.b64decode(text, validate=True)
