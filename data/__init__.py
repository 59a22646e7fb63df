"""Private records and texts: reading, batching, and the corpora that ship with dpassay."""

from __future__ import annotations

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
