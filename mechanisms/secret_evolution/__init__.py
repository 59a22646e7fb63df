"""Secret-protected evolution: text whose selection sees private records through noisy clusters only."""

from __future__ import annotations

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
