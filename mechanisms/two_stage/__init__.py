"""Two-stage fine-tuning of a language model on a private table, and rows sampled from it."""

from __future__ import annotations

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
