"""Privacy filters and odometers, for interactions in which each step may depend on the outcomes of earlier steps."""

from __future__ import annotations

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
