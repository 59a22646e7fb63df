"""Expressions that the ``repr`` of an object writes, parsed and never run."""

from __future__ import annotations

import ast


def parsed(text: str, what: str, *, longest: int, deepest: int) -> ast.expr:
    """The syntax tree of an expression.

    Args:
        text: the expression.
        what: it claims to be, for messages.
        longest: the most characters.
        deepest: the most brackets that are open at once.

    Raises:
        ValueError: one line, if it is too long or too deep, or no expression.
    """
    depth = most = 0
    for one in text:
        depth += (one in "([{") - (one in ")]}")
        most = max(most, depth)
    if len(text) > longest or most > deepest:
        raise ValueError(f"holds {what} that is too long or too deep")
    try:
        return ast.parse(text.strip(), mode="eval").body
    except (SyntaxError, ValueError, MemoryError, RecursionError):
        raise ValueError(f"begins like {what}, but is not the text that it writes") from None
