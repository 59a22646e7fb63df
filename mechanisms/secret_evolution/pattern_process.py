"""Regular expressions of users, matched in a process of their own that ends when a text takes too long.

Python's `re` may need time that grows exponentially with a text, and cannot be interrupted. `PatternProcess` runs this
file as a program, which imports the standard library only.
"""

from __future__ import annotations

import contextlib
import json
import re
import signal
import subprocess
import sys
from collections.abc import Sequence
from typing import Any

SECONDS = 10.0  # of processor time for one text; a pattern without nested repetitions needs milliseconds


class PatternProcess:
    """Matches one pattern in texts.

    Raises:
        ValueError: if a text takes longer than 10 seconds; one line, without the pattern or the text.
    """

    def __init__(self, pattern: str) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-I", "-S", __file__],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            encoding="ascii",
        )
        self._send([pattern, SECONDS])

    def __enter__(self) -> PatternProcess:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout):
            assert pipe is not None
            with contextlib.suppress(BrokenPipeError):
                pipe.close()

    def distinct(self, texts: Sequence[str]) -> list[list[str]]:
        """For each text the distinct matches of the pattern, in order; they do not overlap."""
        return self._asked("distinct", texts)

    def first(self, texts: Sequence[str]) -> list[str | None]:
        """For each text the first match of the pattern; None if there is none."""
        return self._asked("first", texts)

    def _asked(self, what: str, texts: Sequence[str]) -> list[Any]:
        self._send([what, list(texts)])
        assert self._process.stdout is not None
        answer = self._process.stdout.readline()
        if not answer:
            raise ValueError(
                f"pattern takes over {SECONDS:g} seconds on one text; write it such that it can match a text in one "
                "way only, without nested repetitions such as (a+)+"
            )
        result: list[Any] = json.loads(answer)
        return result

    def _send(self, message: object) -> None:
        assert self._process.stdin is not None
        with contextlib.suppress(BrokenPipeError):  # a process that has ended gives no answer
            print(json.dumps(message), file=self._process.stdin, flush=True)


def _serve() -> None:
    """Answers requests line by line. The timer counts processor time and ends the process by a signal."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent handles interruptions
    pattern, seconds = json.loads(sys.stdin.readline())
    compiled = re.compile(pattern)
    for line in sys.stdin:
        what, texts = json.loads(line)
        results: list[Any] = []
        for text in texts:
            signal.setitimer(signal.ITIMER_VIRTUAL, seconds)
            if what == "first":
                match = compiled.search(text)
                results.append(None if match is None else match[0])
            else:
                results.append(list(dict.fromkeys(match[0] for match in compiled.finditer(text))))
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        print(json.dumps(results), flush=True)


if __name__ == "__main__":
    _serve()
