"""Names of accountants and of choices of events. They stand apart so that the command line knows them at once: the
modules of what they name import scipy."""

from __future__ import annotations

import math

LATTICE = "lattice"
BASIC = "basic"
ADVANCED = "advanced"
ZCDP = "zcdp"
GDP = "gdp"
RDP = "rdp"
PLD = "pld"
PRV = "prv"
EX_POST = "ex_post"
SECRET_PROTECTION = "secret_protection"

METHODS = (LATTICE, BASIC, ADVANCED, ZCDP, GDP, RDP, PLD, PRV, EX_POST, SECRET_PROTECTION)
"""All accountants, as `dpassay.accounting.registry.ACCOUNTANTS` has them."""
SECRET_METHODS = (SECRET_PROTECTION, "concave_majorant", "single_gaussian")
"""The bounds on the probability of guessing a secret that are compared."""
LAYER_METHODS = ("exact", "analytic", "classical")
"""The calibrations of noise for the vectors of several layers that are compared."""

NEGATIVE_BINOMIAL = "truncated_negative_binomial"
RUN_SHAPES = {"geometric": 1.0, "poisson": math.inf, "logarithmic": 0.0}
"""Its special cases and limits, by shape."""
RUN_DISTRIBUTIONS = (*RUN_SHAPES, NEGATIVE_BINOMIAL)
"""The laws of a random number of runs, of which the best is released."""
ORDERS = ("any", "same")
"""The places of a record in the epochs of a tree."""
