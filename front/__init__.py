"""cupel verifies privacy claims about synthetic text and tables.

    claim = cupel.read_claim("claim.yaml")
    result = cupel.assay(claim, "report")
    result.verdict, result.best_upper

Names are loaded when they are first used, so that importing cupel costs nothing.
"""

from __future__ import annotations

import lazy_loader

from cupel import _renamed

__version__ = "0.2.0"

_renamed.install()
__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
