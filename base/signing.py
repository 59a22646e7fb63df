"""Signatures: Ed25519, by the library `cryptography`, which is imported when a key or a signature is read."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dpassay.base.errors import InputError, input_errors
from dpassay.base.extras import install
from dpassay.base.private_files import write_atomically

_LARGEST = 2**16  # bytes of a key file; one has about 120


def new_key(file: str | Path) -> str:
    """Makes a key that signs certificates, and writes it to a new file that only its owner may read.

    Args:
        file: where to write it, as unencrypted PKCS #8 in PEM.

    Returns:
        The public key, 64 hexadecimal digits, by which readers check signatures.

    Raises:
        InputError: if the file exists or cannot be written, or `cryptography` is not installed.
    """
    path = Path(file)
    serialization, ed25519, _, _ = _library()
    with input_errors():
        if os.path.lexists(path):
            raise InputError(f"{path}: exists, and a key is never overwritten; name a new file")
        private = ed25519.Ed25519PrivateKey.generate()
        pem = private.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )
        write_atomically(path, pem)
    return SigningKey(private).public


@dataclass(frozen=True)
class SigningKey:
    """A private key."""

    _private: Any

    @classmethod
    def read(cls, file: Path) -> SigningKey:
        """The key in a file, as `new_key` or OpenSSL writes it; an `InputError` if it holds none."""
        serialization, ed25519, _, unsupported = _library()
        with input_errors(), file.open("rb") as opened:
            pem = opened.read(_LARGEST)
        try:
            private = serialization.load_pem_private_key(pem, password=None)
        except (ValueError, TypeError, unsupported):
            private = None
        if not isinstance(private, ed25519.Ed25519PrivateKey):
            raise InputError(f"{file}: holds no unencrypted Ed25519 key; make one with `dpassay key new FILE`")
        return cls(private)

    @property
    def public(self) -> str:
        """The public key, 64 hexadecimal digits."""
        public: str = self._private.public_key().public_bytes_raw().hex()
        return public

    def sign(self, text: bytes) -> str:
        """The signature of a text, 128 hexadecimal digits."""
        signature: str = self._private.sign(text).hex()
        return signature


def is_signed(text: bytes, signature: str, public: str) -> bool:
    """Whether `signature` is that of `text` by the public key; both in hexadecimal digits.

    Raises:
        InputError: if `cryptography` is not installed.
    """
    _, ed25519, invalid, _ = _library()
    if not is_public_key(public) or not re.fullmatch("[0-9a-f]{128}", signature):
        return False
    try:
        ed25519.Ed25519PublicKey.from_public_bytes(bytes.fromhex(public)).verify(bytes.fromhex(signature), text)
    except (invalid, ValueError):
        return False
    return True


def is_public_key(text: str) -> bool:
    """Whether a text has the form of a public key: 64 hexadecimal digits, small letters."""
    return re.fullmatch("[0-9a-f]{64}", text) is not None


def _library() -> tuple[Any, Any, Any, Any]:
    """The parts of the library that are used, and two of its errors."""
    try:
        from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
        from cryptography.hazmat.primitives import serialization
        from cryptography.hazmat.primitives.asymmetric import ed25519
    except ModuleNotFoundError:
        raise InputError(f"signatures need the library cryptography; {install('sign')}") from None
    return serialization, ed25519, InvalidSignature, UnsupportedAlgorithm
