"""The ledger: what a run did, as an append-only, hash-chained record of privacy events."""

from __future__ import annotations

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
