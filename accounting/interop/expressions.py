"""Expressions that the ``repr`` of an object writes, parsed and never run."""

from __future__ import annotations

import ast
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np

from dpassay.accounting.conversions import formulas

_FLOATS: Mapping[str, Callable[[float], Any]] = {"float16": np.float16, "float32": np.float32, "float64": np.float64}
_MAX_DIGITS = 400
_LARGEST_SCALAR = 2**1000
_INTEGERS = frozenset(f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64))


ROUNDED = "PyTorch rounds the numbers that it prints; each counts as the worst that is printed so."
"""The assumption of what holds a `Rounded` number."""


@dataclass(frozen=True, slots=True)
class Rounded:
    """A number that was rounded when it was printed."""

    lower: float  # lower and upper: what it was between
    upper: float


@dataclass(frozen=True, slots=True)
class Expression:
    """The syntax tree of an expression, with its text."""

    tree: ast.expr
    lines: tuple[bytes, ...]

    @property
    def is_rounded(self) -> bool:
        """Whether it has a number that was rounded."""
        nodes = (node for node in ast.walk(self.tree) if isinstance(node, ast.expr))
        return any(isinstance(self.number(node), Rounded) for node in nodes)

    def number(self, node: ast.expr) -> int | float | Rounded | None:
        """The number that an expression writes; None if it writes none.

        It is a literal, a scalar of NumPy such as ``np.float64(1.1)``, or a tensor of PyTorch without dimensions, such
        as ``tensor(1.1000)``. NumPy writes as many digits as tell a number from all others. PyTorch rounds, to four
        digits behind the point unless told otherwise; without a digit there, the number is whole.
        """
        match node:
            case ast.UnaryOp(op=ast.USub(), operand=ast.Constant() | ast.Call() | ast.Name() as inner):
                result = self.number(inner)
                if isinstance(result, Rounded):
                    return Rounded(-result.upper, -result.lower)
                return None if result is None else -result
            case ast.Constant(value=int() | float() as value) if not isinstance(value, bool):
                return value
            case ast.Name(id="inf"):
                return math.inf
            case ast.Call(func=ast.Attribute(value=ast.Name(id="np" | "numpy"), attr=name), args=[single], keywords=[]):
                return self._scalar(name, single)
            case ast.Call(func=ast.Name(id="tensor"), args=[single]):
                return self._tensor(single)
        return None

    def keywords(self, node: ast.Call) -> dict[str, ast.expr]:
        """The named arguments of a call, each given once."""
        results = {str(item.arg): item.value for item in node.keywords}
        if len(results) != len(node.keywords):
            raise ValueError("has an argument twice in one call of its text")
        return results

    def _scalar(self, name: str, node: ast.expr) -> int | float | None:
        result = self.number(node)
        if name in _INTEGERS and isinstance(result, int):
            return result
        if name in _FLOATS and isinstance(result, int | float) and abs(result) < _LARGEST_SCALAR:
            with np.errstate(over="ignore"):
                return float(_FLOATS[name](result))
        return None

    def _tensor(self, node: ast.expr) -> int | float | Rounded | None:
        result = self.number(node)
        if not isinstance(result, float) or not math.isfinite(result):
            return result if isinstance(result, int | float) else None
        literal = node.operand if isinstance(node, ast.UnaryOp) else node
        line = self.lines[literal.lineno - 1] if literal.lineno == literal.end_lineno else b""
        digits, _, exponent = line[literal.col_offset : literal.end_col_offset].decode().lower().partition("e")
        decimals, power = len(digits.partition(".")[2]), int(exponent or 0)
        if not decimals:
            return result
        if decimals > _MAX_DIGITS or abs(power) > _MAX_DIGITS:
            return None
        half = Fraction(10) ** (power - decimals) / 2
        exact = Fraction(digits) * Fraction(10) ** power * (-1 if result < 0 else 1)
        return Rounded(-formulas.up(half - exact), formulas.up(half + exact))


def parsed(text: str, what: str, *, longest: int, deepest: int) -> Expression:
    """The syntax tree of a text that claims to be `what`, unless it is too long or too deep, or no expression."""
    depth = most = 0
    for item in text:
        depth += (item in "([{") - (item in ")]}")
        most = max(most, depth)
    if len(text) > longest or most > deepest:
        raise ValueError(f"holds {what} that is too long or too deep")
    text = text.strip()
    try:
        return Expression(ast.parse(text, mode="eval").body, tuple(text.encode().splitlines()))
    except (SyntaxError, ValueError, MemoryError, RecursionError):
        raise ValueError(f"begins like {what}, but is not the text that it writes") from None
