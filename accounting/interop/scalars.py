"""Single numbers of NumPy and PyTorch, from the bytes that they are stored in."""

from __future__ import annotations

import struct

_FORMATS = {
    **{"f2": "e", "f4": "f", "f8": "d", "i1": "b", "i2": "h", "i4": "i", "i8": "q"},
    **{"u1": "B", "u2": "H", "u4": "I", "u8": "Q"},
}
SIZES = {**{code: int(code[1:]) for code in _FORMATS}, "bf2": 2, "b1": 1}
"""Bytes of a number of each type, by NumPy's code; ``bf2`` is bfloat16."""


def number(code: str, content: bytes, order: str) -> int | float | None:
    """The number in some bytes, exactly; None if its type is not known or the bytes are not as many."""
    if code == "bf2" and order == "<" and len(content) == 2:
        code, content = "f4", b"\0\0" + content  # the upper half of a float32
    if code not in _FORMATS or len(content) != SIZES[code] or (SIZES[code] > 1 and order not in ("<", ">")):
        return None
    result: int | float = struct.unpack(("<" if SIZES[code] == 1 else order) + _FORMATS[code], content)[0]
    return result
