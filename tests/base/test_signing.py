"""Keys and signatures: made, read, checked against a published vector, and refused in one line."""

from __future__ import annotations

import stat
import sys
from pathlib import Path

import pytest
from command import run

from dpassay.base.errors import InputError
from dpassay.base.signing import SigningKey, is_signed, new_key

pytest.importorskip("cryptography", reason="needs the extra sign")


def test_a_key_is_made_once_and_only_its_owner_may_read_it(tmp_path: Path) -> None:
    public = new_key(tmp_path / "my.key")
    assert stat.S_IMODE((tmp_path / "my.key").stat().st_mode) == 0o600
    key = SigningKey.read(tmp_path / "my.key")
    assert key.public == public
    assert is_signed(b"text", key.sign(b"text"), public)
    assert not is_signed(b"other", key.sign(b"text"), public)
    with pytest.raises(InputError, match="exists, and a key is never overwritten"):
        new_key(tmp_path / "my.key")
    assert SigningKey.read(tmp_path / "my.key").public == public
    assert public not in repr(key)


def test_signatures_are_ed25519() -> None:
    """RFC 8032, section 7.1, test 2."""
    public = "3d4017c3e843895a92b70aa74d1b7ebc9c982ccf2ec4968cc0cd55f12af4660c"
    signature = (
        "92a009a9f0d4cab8720e820b5f642540a2b27b5416503f8fb3762223ebdb69da"
        "085ac1e43e15996e458f3613d0f11d8c387b2eaeb4302aeeb00d291612bb0c00"
    )
    assert is_signed(b"\x72", signature, public)
    assert not is_signed(b"\x73", signature, public)
    for wrong in ("", "0" * 128, signature.upper(), signature + "0"):
        assert not is_signed(b"\x72", wrong, public)
    for wrong in ("", "f" * 64, public.upper()):
        assert not is_signed(b"\x72", signature, wrong)


@pytest.mark.parametrize("content", [b"", b"no key", b"-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n"])
def test_a_file_without_a_key_is_one_line(content: bytes, tmp_path: Path) -> None:
    (tmp_path / "my.key").write_bytes(content)
    with pytest.raises(InputError, match="holds no unencrypted Ed25519 key"):
        SigningKey.read(tmp_path / "my.key")


def test_the_command_prints_the_public_key_alone(tmp_path: Path) -> None:
    made = run("key", "new", tmp_path / "my.key")
    assert made.returncode == 0, made.stderr
    assert made.stdout == f"Public key: {SigningKey.read(tmp_path / 'my.key').public}\n"
    again = run("key", "new", tmp_path / "my.key")
    assert (again.returncode, again.stdout, again.stderr.count("\n")) == (2, "", 1)


def test_without_the_library_one_line_says_what_to_install(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setitem(sys.modules, "cryptography.exceptions", None)
    said = run("key", "new", tmp_path / "my.key")
    assert said.returncode == 2
    assert "pip install '.[sign]'" in said.stderr
    assert not (tmp_path / "my.key").exists()
