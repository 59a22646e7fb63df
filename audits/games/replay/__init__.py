"""Record and replay: checks each event of a mechanism by running it on neighbours of the data."""

from __future__ import annotations

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
