"""Tables by private evolution: every private row votes for candidates, column by column and pair by pair."""

from __future__ import annotations

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
