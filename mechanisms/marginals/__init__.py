"""Synthetic tables from noisy marginals: AIM and MST of OpenDP, on the public domains of a schema."""

from __future__ import annotations

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
