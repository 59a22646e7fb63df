"""Calibration: the noise, sampling probability, number of steps, clip or temperature that meets a target."""

from __future__ import annotations

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
