"""Tests of mechanisms, including your own. Runs made here use seeded noise and must not be released."""

from __future__ import annotations

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
