"""Renders untrusted templates in a child process with limits of time and memory.

A claim's template and a model's chat template are Jinja templates that a third party may have written. Jinja's sandbox
isolates them from the interpreter, but does not prevent endless loops or excessive memory. So a child process renders
them: this file run as a program, which reads requests and writes answers, one line of JSON each.
"""

from __future__ import annotations

import atexit
import contextlib
import functools
import json
import os
import selectors
import subprocess
import sys
import threading
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Literal

from dpassay.base.errors import DpassayError

if TYPE_CHECKING:
    import jinja2

SECONDS = 10.0
"""Time limit of one rendering."""

MEBIBYTES = 1024
"""Limit of the child's address space."""

LONGEST = 2**22
"""Limit of the characters of a rendered text."""

Kind = Literal["prompt", "chat"]


class RenderingError(DpassayError):
    """A template that cannot be rendered. Its message is the type of error and shows none of the values; `detail`, the
    message of the template's own error, may quote them."""

    def __init__(self, kind: str, detail: str = "") -> None:
        super().__init__(kind)
        self.detail = detail


def rendered(kind: Kind, template: str, values: Mapping[str, Any]) -> str:
    """The text of a template with values of JSON types.

    Args:
        kind: ``prompt`` is Jinja, if the template has its braces, else `str.format`; ``chat`` is a chat template as
            rendered by `transformers`, whose values are the messages and further variables.

    Raises:
        RenderingError: one line, if the template fails, or exceeds the limits of time or size.
    """
    with _LOCK:
        answer = _worker().ask({"kind": kind, "template": template, "values": dict(values)})
    if "error" in answer:
        raise RenderingError(answer["error"], answer.get("detail", ""))
    text: str = answer["text"]
    return text


class _Worker:
    """The child process and its pipes."""

    def __init__(self) -> None:
        self.owner = os.getpid()
        self._child = subprocess.Popen(
            [sys.executable, "-P", "-m", __spec__.name],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        )
        assert self._child.stdin is not None
        assert self._child.stdout is not None
        self._requests, self._answers = self._child.stdin, self._child.stdout
        self._rest = b""
        self.answers = True
        if self._line(time.monotonic() + 6 * SECONDS) is None:  # starting may take long on a busy machine
            self.close()
            raise RenderingError("the process that renders templates could not be started")

    def ask(self, request: dict[str, Any]) -> dict[str, str]:
        body = json.dumps(request).encode() + b"\n"
        until = time.monotonic() + SECONDS
        # Write in another thread, since a child that does not read must not block this process.
        writer = threading.Thread(target=self._write, args=(body,), daemon=True)
        writer.start()
        line = self._line(until)
        if line is None:
            late = time.monotonic() >= until
            self.close()
            why = f"it takes longer than {SECONDS:g} s" if late else f"it takes more than {MEBIBYTES} MiB"
            return {"error": why}  # or the child was killed from outside, which is indistinguishable
        writer.join()
        answer: dict[str, str] = json.loads(line)
        return answer

    def close(self) -> None:
        """Ends the child, unless this process was forked from its owner."""
        self.answers = False
        if self.owner != os.getpid():
            return
        self._child.kill()
        self._child.wait()
        for pipe in (self._requests, self._answers):
            with contextlib.suppress(OSError):
                pipe.close()

    def _write(self, body: bytes) -> None:
        with contextlib.suppress(OSError, ValueError):
            self._requests.write(body)
            self._requests.flush()

    def _line(self, until: float) -> bytes | None:
        """The next line of the child; None if it ended or is late."""
        with selectors.DefaultSelector() as selector:
            selector.register(self._answers, selectors.EVENT_READ)
            while b"\n" not in self._rest:
                if not selector.select(max(0.0, until - time.monotonic())):
                    return None
                read = os.read(self._answers.fileno(), 2**20)
                if not read:
                    return None
                self._rest += read
        line, _, self._rest = self._rest.partition(b"\n")
        return line


_LOCK = threading.Lock()
_KEPT: list[_Worker] = []


def _worker() -> _Worker:
    """The child of this process, started on first use and restarted if it was stopped."""
    if _KEPT and (_KEPT[0].owner != os.getpid() or not _KEPT[0].answers):
        _KEPT.clear()
    if not _KEPT:
        _KEPT.append(_Worker())
        atexit.register(_KEPT[0].close)
    return _KEPT[0]


def _serve() -> None:
    """Main loop of the child: answers one request per line until its input ends."""
    _limit()
    answers = sys.stdout
    sys.stdout = sys.stderr
    print("ready", file=answers, flush=True)
    for line in sys.stdin:
        request = json.loads(line)
        try:
            text = _RENDER[request["kind"]](request["template"], request["values"])
            answer = {"text": text} if len(text) <= LONGEST else {"error": f"it has more than {LONGEST} characters"}
        except MemoryError:
            answer = {"error": f"it takes more than {MEBIBYTES} MiB"}
        except Exception as error:
            answer = {"error": type(error).__name__, "detail": str(error)[:200]}
        print(json.dumps(answer), file=answers, flush=True)


def _limit() -> None:
    with contextlib.suppress(ImportError, OSError, ValueError):  # without memory limits there is still the time limit
        import resource

        resource.setrlimit(resource.RLIMIT_AS, (MEBIBYTES * 2**20, MEBIBYTES * 2**20))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def filled(template: str, values: Mapping[str, Any]) -> str:
    """Renders a template of this package in this process; `rendered` is for untrusted templates."""
    if "{%" not in template and "{{" not in template:
        return template.format(**values)
    return _compiled(template).render(values)


@functools.lru_cache(maxsize=16)
def _compiled(template: str) -> jinja2.Template:
    import jinja2.sandbox

    environment = jinja2.sandbox.ImmutableSandboxedEnvironment(
        undefined=jinja2.StrictUndefined, keep_trailing_newline=True
    )
    del environment.filters["random"], environment.globals["lipsum"]  # a prompt is a function of its records
    return environment.from_string(template)


def _chat(template: str, values: dict[str, Any]) -> str:
    from transformers.utils.chat_template_utils import render_jinja_template

    (text,), _ = render_jinja_template(conversations=[values.pop("messages")], chat_template=template, **values)
    return str(text)


_RENDER = {"prompt": filled, "chat": _chat}

if __name__ == "__main__":
    _serve()
