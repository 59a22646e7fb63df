"""Dataset vectors: a language model is steered by one private release, the direction from its texts to the records."""

from __future__ import annotations

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
