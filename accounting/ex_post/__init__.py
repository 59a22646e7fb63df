"""Ex-post accounting of median aggregation: the cost of sampled tokens, given the batches that produced them."""

from __future__ import annotations

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
