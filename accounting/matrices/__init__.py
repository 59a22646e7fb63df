"""Matrix mechanisms: sensitivities of strategy matrices and trees, and the events that follow from them."""

from __future__ import annotations

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
