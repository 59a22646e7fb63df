"""The module `secrets` played again from a seed, for a test whose control would fail by chance now and then."""

from __future__ import annotations

import os
import random
import secrets
import uuid

import pytest


def seed_entropy(monkeypatch: pytest.MonkeyPatch, seed: int) -> None:
    """Coins, canaries and names of a plan follow from the seed in this test.

    Names of ledgers do, too, so the test has anchors of its own: another with the same seed may have run before.
    """
    draw = random.Random(seed)
    monkeypatch.setenv("XDG_STATE_HOME", f"{os.environ['XDG_STATE_HOME']}/seeded/{uuid.uuid4()}")
    monkeypatch.setattr(secrets, "randbits", draw.getrandbits)
    monkeypatch.setattr(secrets, "token_bytes", draw.randbytes)
    monkeypatch.setattr(secrets, "token_hex", lambda size: draw.randbytes(size).hex())
