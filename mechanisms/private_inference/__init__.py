"""Private inference: a language model generates text from private records, whose predictions are aggregated."""

from __future__ import annotations

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
