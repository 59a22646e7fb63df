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

    A key of which anybody can sign (`is_weak`) signs nothing.

    Raises:
        InputError: if `cryptography` is not installed.
    """
    _, ed25519, invalid, _ = _library()
    if not is_public_key(public) or is_weak(public) or not re.fullmatch("[0-9a-f]{128}", signature):
        return False
    try:
        ed25519.Ed25519PublicKey.from_public_bytes(bytes.fromhex(public)).verify(bytes.fromhex(signature), text)
    except (invalid, ValueError):
        return False
    return True


def is_public_key(text: str) -> bool:
    """Whether a text has the form of a public key: 64 hexadecimal digits, small letters."""
    return re.fullmatch("[0-9a-f]{64}", text) is not None


_P = 2**255 - 19
_D = -121665 * pow(121666, -1, _P)


def is_weak(public: str) -> bool:
    """Whether a public key is a point of order 1, 2, 4 or 8, or its y is not below p.

    Under a key of small order anybody can sign, as h·A is one of at most 8 points: S = 0 and an R among these are a
    valid signature of one text in eight. Of the points (x, y) on −x² + y² = 1 + d·x²·y², those of order 4 have y = 0,
    those of order 1 and 2 have x = 0, so y² = 1, and of those of order 8 twice has y = 0, so x² = −y², which is
    d·y⁴ + 2·y² − 1 = 0.

    Source: RFC 8032, section 5.1.
    """
    y = int.from_bytes(bytes.fromhex(public), "little") % 2**255
    return y >= _P or y * (y * y - 1) * (_D * y**4 + 2 * y * y - 1) % _P == 0


def _library() -> tuple[Any, Any, Any, Any]:
    """The parts of the library that are used, and two of its errors."""
    try:
        from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
        from cryptography.hazmat.primitives import serialization
        from cryptography.hazmat.primitives.asymmetric import ed25519
    except ModuleNotFoundError:
        raise InputError(f"signatures need the library cryptography; {install('sign')}") from None
    return serialization, ed25519, InvalidSignature, UnsupportedAlgorithm
