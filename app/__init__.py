"""dpassay verifies privacy claims about synthetic text and tables.

    claim = dpassay.read_claim("claim.yaml")
    result = dpassay.assay(claim, "report")
    result.verdict, result.best_upper

Names are loaded when they are first used, so that importing dpassay costs nothing.
"""

from __future__ import annotations

import lazy_loader

__version__ = "0.3.0.dev0"

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
