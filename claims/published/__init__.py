"""The registry of published claims: statements of papers and libraries about privacy, each checked by computation."""

from __future__ import annotations

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
