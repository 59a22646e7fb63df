"""For tests of mechanisms, your own included. What runs here write protects nobody, and nothing of it is released."""

from __future__ import annotations

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
