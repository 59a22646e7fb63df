"""A row that is watched, and ways to change the rows beside it."""

from __future__ import annotations

STEPS = 4
INSTRUCTION = list(range(100, 120))
ROW = [*INSTRUCTION, 5, 6, 7, 8, 9]
"""The row that is watched; windows of 6 tokens slide over it."""

OTHERS = [[*INSTRUCTION, 20, 21], [*INSTRUCTION, 30, 31, 32, 33, 34, 35, 36], [*INSTRUCTION, 40]]
CHANGES: dict[str, tuple[list[list[int]], list[list[int]]]] = {  # rows before and behind the watched one
    "another text": ([OTHERS[0]], [[*INSTRUCTION, 50, 51, 52, 53, 54, 55, 56], OTHERS[2]]),
    "another beginning": ([OTHERS[0]], [OTHERS[1], [200 + token % 90 for token in OTHERS[2]]]),
    "a longer row": ([OTHERS[0]], [list(range(1, 60)), OTHERS[2]]),
    "a shorter row": ([[3]], OTHERS[1:]),
    "the row again": ([ROW], [ROW, OTHERS[1], OTHERS[2]]),
    "more rows": (OTHERS * 5, OTHERS * 6),
    "fewer rows": ([], OTHERS[2:]),
    "no other row": ([], []),
    "another order": ([OTHERS[2], OTHERS[1]], [OTHERS[0]]),
}
