"""An OpenAI-compatible endpoint on this machine that writes a few words for each seed, and can be made to fail."""

from __future__ import annotations

import json
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import numpy as np

WORDS = ("ash", "birch", "cedar", "elm", "fir", "hazel", "larch", "maple", "oak", "pine", "rowan", "willow")


class TextServer(ThreadingHTTPServer):
    """Answers until `fails_after` requests were answered; None answers all."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.fails_after: int | None = None
        self.prompts: list[str] = []
        self.lock = threading.Lock()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}/v1"

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Says nothing of a client that was killed while it asked."""
        if not isinstance(sys.exception(), ConnectionError):
            super().handle_error(request, client_address)


class _Handler(BaseHTTPRequestHandler):
    server: TextServer

    def do_POST(self) -> None:
        length = int(self.headers["Content-Length"])
        if len(content := self.rfile.read(length)) < length:
            raise ConnectionError("the client is gone")
        asked = json.loads(content)
        with self.server.lock:
            failing = self.server.fails_after is not None and len(self.server.prompts) >= self.server.fails_after
            if not failing:
                self.server.prompts.append(asked["messages"][0]["content"])
        text = " ".join(np.random.default_rng(asked["seed"]).choice(WORDS, 4))
        answer = {"choices": [{"message": {"content": text}, "finish_reason": "stop"}]}
        body = json.dumps({"error": {"message": "out of order"}} if failing else answer).encode()
        self.send_response(500 if failing else 200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        pass


@contextmanager
def text_server() -> Iterator[TextServer]:
    """A running server."""
    with TextServer() as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()
