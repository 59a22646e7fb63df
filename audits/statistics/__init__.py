"""Statistics that turn scores, guesses and hits into bounds; independent of the type of the data.

Each finite-sample statistic has a coverage test on mechanisms whose ε is known exactly (`tests/audits`).
"""

from __future__ import annotations

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
