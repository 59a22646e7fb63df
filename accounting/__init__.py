"""Upper bounds: guarantees, events, the ledger, accountants.

Names are loaded when they are first used, so that importing this package costs nothing.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from cupel.accounting import ex_post
    from cupel.accounting.adjacency import Adjacency, Unit
    from cupel.accounting.bounds import Bound, Direction, Interval, Rigor
    from cupel.accounting.calibration import Calibration, TradeOff, calibrate, calibrate_many, noise_for_dp_sgd
    from cupel.accounting.comparison import Comparison, compare
    from cupel.accounting.composition import Accountant, Unsupported
    from cupel.accounting.dominating_pairs import DominatingPair, WidthNotMet
    from cupel.accounting.filters import BudgetExhausted, Filter
    from cupel.accounting.guarantees import (
        GDP,
        RDP,
        ZCDP,
        ApproxDP,
        ExPostDP,
        Guarantee,
        PrivacyProfile,
        PureDP,
        SecretProtection,
    )
    from cupel.accounting.lattice import dominating_pair
    from cupel.accounting.odometers import Odometer
    from cupel.accounting.registry import ACCOUNTANTS, account, accountant, unsupported, upper_bounds

_HOMES = {
    "comparison": ("Comparison", "compare"),
    "composition": ("Accountant", "Unsupported"),
    "adjacency": ("Adjacency", "Unit"),
    "calibration": ("Calibration", "TradeOff", "calibrate", "calibrate_many", "noise_for_dp_sgd"),
    "bounds": ("Bound", "Direction", "Interval", "Rigor"),
    "guarantees": (
        "GDP",
        "RDP",
        "ZCDP",
        "ApproxDP",
        "ExPostDP",
        "Guarantee",
        "PrivacyProfile",
        "PureDP",
        "SecretProtection",
    ),
    "dominating_pairs": ("DominatingPair", "WidthNotMet"),
    "filters": ("BudgetExhausted", "Filter"),
    "lattice": ("dominating_pair",),
    "odometers": ("Odometer",),
    "registry": ("ACCOUNTANTS", "account", "accountant", "unsupported", "upper_bounds"),
}
_HOME_OF = {name: module for module, names in _HOMES.items() for name in names}

__all__ = [
    "ACCOUNTANTS",
    "GDP",
    "RDP",
    "ZCDP",
    "Accountant",
    "Adjacency",
    "ApproxDP",
    "Bound",
    "BudgetExhausted",
    "Calibration",
    "Comparison",
    "Direction",
    "DominatingPair",
    "ExPostDP",
    "Filter",
    "Guarantee",
    "Interval",
    "Odometer",
    "PrivacyProfile",
    "PureDP",
    "Rigor",
    "SecretProtection",
    "TradeOff",
    "Unit",
    "Unsupported",
    "WidthNotMet",
    "account",
    "accountant",
    "calibrate",
    "calibrate_many",
    "compare",
    "dominating_pair",
    "ex_post",
    "noise_for_dp_sgd",
    "unsupported",
    "upper_bounds",
]


def __getattr__(name: str) -> Any:
    if name == "ex_post":
        return import_module("cupel.accounting.ex_post")
    if name not in _HOME_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOME_OF[name]}"), name)
