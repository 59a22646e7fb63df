"""Aug-PE: text by private evolution, in which every private record votes for its nearest candidate."""

from __future__ import annotations

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
