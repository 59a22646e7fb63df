"""The module `secrets` played again from a seed, for a test whose control would fail by chance now and then."""

from __future__ import annotations

import random
import secrets

import pytest


def seed_entropy(monkeypatch: pytest.MonkeyPatch, seed: int) -> None:
    """Coins, canaries and names of a plan follow from the seed in this test."""
    draw = random.Random(seed)
    monkeypatch.setattr(secrets, "randbits", draw.getrandbits)
    monkeypatch.setattr(secrets, "token_bytes", draw.randbytes)
    monkeypatch.setattr(secrets, "token_hex", lambda size: draw.randbytes(size).hex())
