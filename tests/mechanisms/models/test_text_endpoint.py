"""The writer behind an endpoint, against a server on 127.0.0.1 that answers, refuses, breaks off and dawdles."""

from __future__ import annotations

import contextlib
import email.utils
import json
import socket
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dpassay.mechanisms.embedding.embedder import HashedNgrams
from dpassay.mechanisms.evolution.journal import Journal
from dpassay.mechanisms.evolution.loop import EvolutionSettings, Indices, SyntheticText, evolve
from dpassay.mechanisms.models import endpoint
from dpassay.mechanisms.models.endpoint import EndpointError, EndpointWriter, retry_after

KEY = "sk-not-a-real-key-0123456789"

Reply = tuple[int, Mapping[str, str], bytes]


def completion(text: object, finish: str = "stop") -> Reply:
    """A good answer of either kind."""
    choice = {"message": {"role": "assistant", "content": text}, "text": text, "finish_reason": finish}
    return 200, {}, json.dumps({"choices": [choice]}).encode()


def refusal(status: int, told: object = None, **headers: str) -> Reply:
    return status, headers, b"" if told is None else json.dumps({"error": told}).encode()


class Server(ThreadingHTTPServer):
    """Answers as `reply` says, given the number of the request and its body; remembers all requests."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.reply: Callable[[int, dict[str, Any]], Reply] = lambda number, body: completion("text")
        self.requests: list[tuple[str, dict[str, str], dict[str, Any]]] = []
        self.open, self.most_open, self.lock = 0, 0, threading.Lock()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}/v1"

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that hangs up is no news."""


class Handler(BaseHTTPRequestHandler):
    server: Server

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        with self.server.lock:
            number = len(self.server.requests)
            self.server.requests.append((self.path, dict(self.headers), body))
            self.server.open += 1
            self.server.most_open = max(self.server.most_open, self.server.open)
        try:
            status, headers, content = self.server.reply(number, body)
            self.send_response(status)
            for name, value in headers.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(content)
        finally:
            with self.server.lock:
                self.server.open -= 1

    do_GET = do_POST

    def log_message(self, format: str, *args: Any) -> None:
        """Says nothing."""


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    monkeypatch.setenv("no_proxy", "*")
    monkeypatch.setattr(endpoint, "FIRST_WAIT", 0.001)
    server = Server()
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
    thread.start()
    yield server
    server.shutdown()
    server.server_close()


def written(writer: EndpointWriter, count: int) -> tuple[list[str | None], str | None]:
    """What a writer gives, and the one line that it ends with, if it does."""
    texts: list[str | None] = []
    told = None
    try:
        for text in writer.vary([f"parent {index}" for index in range(count)], "label", range(count)):
            texts.append(text)
    except EndpointError as error:
        told = str(error)
    assert told is None or "\n" not in told
    return texts, told


def test_a_chat_request_has_what_an_openai_compatible_server_expects(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SOME_KEY", KEY)
    writer = EndpointWriter(url=server.url, model="m", api_key_env="SOME_KEY", temperature=0.5, max_tokens=9)
    assert list(writer.vary(["One visit."], "poor", [2**40 + 5])) == ["text"]
    ((path, headers, body),) = server.requests
    assert path == "/v1/chat/completions"
    assert headers["Authorization"] == f"Bearer {KEY}"
    assert body == {
        "model": "m",
        "messages": [{"role": "user", "content": body["messages"][0]["content"]}],
        "temperature": 0.5,
        "top_p": 1.0,
        "max_tokens": 9,
        "seed": 5,
    }
    asked = body["messages"][0]["content"]
    assert asked.startswith("Rewrite the following text of the kind poor.")
    assert asked.endswith("\n\nOne visit.")


def test_a_plain_request_continues_a_series(server: Server) -> None:
    writer = EndpointWriter(
        url=server.url + "/completions/", model="m", examples={"poor": ["Two."]}, fields={"top_p": None, "top_k": 3}
    )
    assert list(writer.random("poor", [1])) == ["text"]
    ((path, headers, body),) = server.requests
    assert path == "/v1/completions"
    assert "Authorization" not in headers
    assert body["prompt"] == "```\npoor\nTwo.\n```\n\n```\npoor\n"
    assert body["stop"] == "```"
    assert (body["top_k"], "top_p" in body) == (3, False)


def test_answers_keep_their_order_and_few_requests_are_open(server: Server) -> None:
    def reply(number: int, body: dict[str, Any]) -> Reply:
        time.sleep(0.02 * (body["seed"] % 3))
        return completion(str(body["seed"]))

    server.reply = reply
    texts, told = written(EndpointWriter(url=server.url, model="m", at_once=3), 20)
    assert (texts, told) == ([str(seed) for seed in range(20)], None)
    assert 1 < server.most_open <= 3


@pytest.mark.parametrize(
    "broken",
    [
        refusal(429, {"message": "slow down"}),
        refusal(429, **{"Retry-After": "0"}),
        refusal(500),
        refusal(503, "overloaded"),
        (200, {}, b"<html>not JSON"),
        (200, {}, b"\xff\xfe"),
        (200, {}, b"[" * 100_000),
        (200, {}, b"[]"),
        (200, {}, b'{"choices": []}'),
        (200, {}, b'{"choices": [{"message": "text"}]}'),
        (200, {}, b'{"choices": [{"message": {"content": [1]}}]}'),
        (200, {"Content-Length": "1000"}, b'{"choices"'),
    ],
)
def test_what_may_go_away_is_tried_again_and_then_told(server: Server, broken: Reply) -> None:
    server.reply = lambda number, body: broken if number < 2 else completion("text")
    writer = EndpointWriter(url=server.url, model="m", at_once=1, tries=3)
    assert written(writer, 1) == (["text"], None)
    assert len(server.requests) == 3
    assert server.requests[0][2] == server.requests[2][2]
    server.requests.clear()
    server.reply = lambda number, body: broken
    texts, told = written(writer, 1)
    assert texts == [None]
    assert told is not None
    assert told.startswith(f"endpoint 127.0.0.1:{server.server_address[1]}: ")
    assert "after 3 tries" in told
    assert told.endswith("the same command resumes from there")
    assert len(server.requests) == 3


def test_the_wait_is_what_the_server_asks_for(server: Server) -> None:
    waits: list[float] = []

    class Waits(threading.Event):
        def wait(self, timeout: float | None = None) -> bool:
            waits.append(timeout or 0.0)
            return False

    asked = ["7", None, "1e9", "nan", "-3", "soon"]
    server.reply = lambda number, body: (
        refusal(429, **({} if asked[number] is None else {"Retry-After": asked[number] or ""}))
        if number < len(asked)
        else completion("text")
    )
    writer = EndpointWriter(url=server.url, model="m", tries=7)
    assert writer.ask("prompt", 0, endpoint.Calls(None, stopped=Waits())) == "text"
    assert waits[0] == 7
    assert waits[2] == 300
    for index in (1, 3, 4, 5):
        assert 0.001 * 2**index <= waits[index] <= 0.00125 * 2**index


def test_a_retry_after_may_be_a_date() -> None:
    assert 25 < (retry_after(email.utils.formatdate(time.time() + 30, usegmt=True)) or 0) <= 30
    assert retry_after(email.utils.formatdate(time.time() - 30, usegmt=True)) is None


@pytest.mark.parametrize("status", [401, 403])
def test_a_refused_key_is_told_at_once_and_never_shown(
    server: Server, monkeypatch: pytest.MonkeyPatch, status: int
) -> None:
    monkeypatch.setenv("SOME_KEY", KEY)
    server.reply = lambda number, body: refusal(status, {"message": f"wrong key {KEY[:20]}"})
    writer = EndpointWriter(url=server.url, model="m", api_key_env="SOME_KEY", at_once=1)
    texts, told = written(writer, 5)
    assert texts[0] is None
    assert len(server.requests) == 1
    assert f"HTTP {status}: the API key in the environment variable SOME_KEY is not accepted" in (told or "")
    assert KEY[:10] not in (told or "")
    assert KEY not in repr(writer)
    assert "no API key was sent" in (written(replace(writer, api_key_env=None), 1)[1] or "")


def test_a_request_that_is_wrong_is_told_once_with_what_the_server_says(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SOME_KEY", KEY)
    told_by_server = f"model m\x1b[31m\nis unknown to {KEY} " + "x" * 500
    server.reply = lambda number, body: refusal(404, {"message": told_by_server})
    texts, told = written(EndpointWriter(url=server.url, model="m", api_key_env="SOME_KEY", at_once=1), 5)
    assert texts[0] is None
    assert len(server.requests) == 1
    assert told is not None
    assert "HTTP 404 (model m [31m is unknown to … xxx" in told
    assert KEY not in told
    assert len(told) < 400


def test_a_key_goes_nowhere_else(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SOME_KEY", KEY)
    server.reply = lambda number, body: (302, {"Location": f"{server.url}/elsewhere"}, b"")
    writer = EndpointWriter(url=server.url, model="m", api_key_env="SOME_KEY", at_once=1)
    assert "HTTP 302" in (written(writer, 1)[1] or "")
    assert [path for path, _, _ in server.requests] == ["/v1/chat/completions"]


@pytest.mark.parametrize("value", [None, "", "  ", "a\nb", "schlüssel"])
def test_a_key_that_is_none_sends_nothing(server: Server, monkeypatch: pytest.MonkeyPatch, value: str | None) -> None:
    monkeypatch.delenv("SOME_KEY", raising=False)
    if value is not None:
        monkeypatch.setenv("SOME_KEY", value)
    texts, told = written(EndpointWriter(url=server.url, model="m", api_key_env="SOME_KEY"), 3)
    assert texts == []
    assert "the environment variable SOME_KEY has no API key" in (told or "")
    assert not server.requests


def test_an_answer_that_takes_too_long_is_tried_again(server: Server) -> None:
    def reply(number: int, body: dict[str, Any]) -> Reply:
        if number == 0:
            time.sleep(0.6)
        return completion("text")

    server.reply = reply
    writer = EndpointWriter(url=server.url, model="m", timeout=0.3, tries=2)
    assert written(writer, 1) == (["text"], None)

    def late(number: int, body: dict[str, Any]) -> Reply:
        time.sleep(0.6)
        return completion("text")

    server.reply = late
    assert "no answer in 0.3 seconds, after 2 tries" in (written(writer, 1)[1] or "")


def test_a_server_that_drips_or_floods_is_left(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    def drip(self: Handler) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        self.send_response(200)
        self.end_headers()
        for _ in range(1000):
            self.wfile.write(b" ")
            time.sleep(0.02)

    monkeypatch.setattr(endpoint, "LONGEST_ANSWER", 1000)
    server.reply = lambda number, body: (200, {}, b" " * 2000)
    writer = EndpointWriter(url=server.url, model="m", timeout=0.3, tries=1)
    assert "an answer of over 1000 bytes" in (written(writer, 1)[1] or "")
    monkeypatch.setattr(Handler, "do_POST", drip)
    began = time.monotonic()
    assert "no answer in 0.3 seconds" in (written(writer, 1)[1] or "")
    assert time.monotonic() - began < 15  # a whole answer would take 20 seconds


DRIPS = {
    "status line": (b"", b"H"),
    "header": (b"HTTP/1.1 200 OK\r\n", b"X"),
    "headers": (b"HTTP/1.1 200 OK\r\n", b"X: y\r\n"),
    "100 Continue": (b"", b"HTTP/1.1 100 Continue\r\n\r\n"),
    "chunk sizes": (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", b"0"),
    "chunks": (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", b"1\r\n \r\n"),
    "trailers": (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n", b"X: y\r\n"),
    "content": (b"HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\n", b" "),
    "error": (b"HTTP/1.1 400 Bad\r\nContent-Length: 100000\r\n\r\n", b" "),
}


@pytest.mark.grid
@pytest.mark.parametrize("drip", DRIPS)
def test_the_timeout_bounds_a_whole_call_whatever_is_sent_slowly(drip: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every piece comes long before the timeout, which a socket alone would count from the last piece."""
    monkeypatch.setenv("no_proxy", "*")
    before, piece = DRIPS[drip]
    over = threading.Event()

    def serve() -> None:
        connection, _ = listening.accept()
        with connection, contextlib.suppress(OSError):
            connection.recv(65536)
            connection.sendall(before)
            while not over.wait(0.05):
                connection.sendall(piece)

    with socket.create_server(("127.0.0.1", 0)) as listening:
        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        timer = threading.Timer(10, over.set)
        timer.start()
        url = f"http://127.0.0.1:{listening.getsockname()[1]}/v1"
        began = time.monotonic()
        _, told = written(EndpointWriter(url=url, model="m", timeout=0.5, tries=1), 1)
        took = time.monotonic() - began
        over.set()
        thread.join()
        timer.cancel()
    assert ("HTTP 400" if drip == "error" else "no answer in 0.5 seconds") in (told or "")
    assert took < 5


def test_the_timeout_bounds_the_search_for_the_host(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("no_proxy", "*")
    over = threading.Event()
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: [][: over.wait(20)])
    began = time.monotonic()
    _, told = written(EndpointWriter(url="https://example.invalid/v1", model="m", timeout=0.3, tries=1), 1)
    over.set()
    assert "no answer in 0.3 seconds" in (told or "")
    assert time.monotonic() - began < 10


def test_a_request_over_tls_is_bounded_as_well(monkeypatch: pytest.MonkeyPatch) -> None:
    """The server takes the connection and never answers the handshake."""
    monkeypatch.setenv("no_proxy", "*")
    with socket.create_server(("127.0.0.1", 0)) as listening:
        url = f"https://127.0.0.1:{listening.getsockname()[1]}/v1"
        began = time.monotonic()
        _, told = written(EndpointWriter(url=url, model="m", timeout=0.3, tries=1), 1)
    assert "no answer in 0.3 seconds" in (told or "")
    assert time.monotonic() - began < 10


def test_no_server_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("no_proxy", "*")
    closed = ThreadingHTTPServer(("127.0.0.1", 0), BaseHTTPRequestHandler)
    closed.server_close()
    writer = EndpointWriter(url=f"http://127.0.0.1:{closed.server_address[1]}", model="m", tries=1)
    assert issubclass(EndpointError, ValueError)
    assert "no connection (Connection refused)" in (written(writer, 4)[1] or "")


def test_empty_filtered_and_cut_answers(server: Server) -> None:
    writer = EndpointWriter(url=server.url, model="m")
    server.reply = lambda number, body: completion(None, "content_filter")
    assert written(writer, 1) == ([""], None)
    server.reply = lambda number, body: refusal(400, {"message": "no", "code": "content_filter"})
    assert written(writer, 1) == ([""], None)
    server.reply = lambda number, body: completion("cut off", "length")
    assert written(writer, 1) == (["cut off"], None)
    assert written(replace(writer, whole=True), 1) == ([""], None)


def test_answers_that_were_under_way_at_a_failure_are_given(server: Server) -> None:
    under_way = threading.Barrier(4)

    def reply(number: int, body: dict[str, Any]) -> Reply:
        if number <= 4:
            under_way.wait(10)
        if body["seed"] == 1:
            return refusal(400, {"message": "no"})
        time.sleep(0.1)
        return completion(str(body["seed"]))

    server.reply = reply
    texts, told = written(EndpointWriter(url=server.url, model="m", at_once=4), 100)
    assert "HTTP 400 (no)" in (told or "")
    assert texts[:4] == ["0", None, "2", "3"]
    assert len(server.requests) <= 8
    assert len(texts) <= 16
    sent = {str(body["seed"]) for _, _, body in server.requests} - {"1"}
    assert {text for text in texts if text is not None} == sent


SETTINGS = EvolutionSettings(rounds=3, synthetic=3, variations=2, labels=("a", "b"))


def evolved(server: Server, path: Path, **settings: Any) -> tuple[SyntheticText, ...]:
    writer, embedder = EndpointWriter(url=server.url, model="m", **settings), HashedNgrams(dimension=4, buckets=64)

    def select(number: int, vectors: Mapping[str | None, Any]) -> dict[str | None, Indices]:
        return {label: np.argsort(-rows[:, 0], kind="stable")[:3] for label, rows in vectors.items()}

    with Journal(path, SETTINGS.about(writer, embedder)) as journal:
        return evolve(SETTINGS, writer, embedder, select, journal)


def test_a_run_goes_on_after_the_endpoint_failed_and_pays_for_no_answer_twice(server: Server, tmp_path: Path) -> None:
    def answer(body: dict[str, Any]) -> Reply:
        return completion(f"{body['seed']:x}")

    server.reply = lambda number, body: answer(body)
    expected = evolved(server, tmp_path / "whole")
    lines = sorted((tmp_path / "whole").read_text().splitlines())
    total = len(server.requests)
    assert total == len(lines) - 1
    for works in (0, 1, 7, 13, 20, total - 1):
        server.requests.clear()
        path = tmp_path / f"fails{works}"

        def fails(number: int, body: dict[str, Any], works: int = works) -> Reply:
            return answer(body) if number < works else refusal(500)

        server.reply = fails
        with pytest.raises(EndpointError, match="HTTP 500, after 2 tries"):
            evolved(server, path, tries=2, at_once=2)
        assert len(path.read_text().splitlines()) == 1 + works
        server.requests.clear()
        server.reply = lambda number, body: answer(body)
        assert evolved(server, path, tries=2, at_once=3) == expected
        assert len(server.requests) == total - works
        assert sorted(path.read_text().splitlines()) == lines


def test_a_server_that_answers_nothing_but_garbage_leaves_the_run_to_be_gone_on_with(
    server: Server, tmp_path: Path
) -> None:
    server.reply = lambda number, body: (200, {}, b"garbage")
    with pytest.raises(EndpointError, match="an answer that is not JSON, after 2 tries"):
        evolved(server, tmp_path / "journal", tries=2)
    assert len((tmp_path / "journal").read_text().splitlines()) == 1


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"url": "api.example.com/v1"}, "must begin with https:// or http://"),
        ({"url": "file:///etc/passwd"}, "must begin with https:// or http://"),
        ({"url": "http://"}, "must begin with https:// or http://"),
        ({"url": "http://[::1"}, "must be a URL"),
        ({"url": "http://host:port/v1"}, "must be a URL"),
        ({"url": f"https://me:{KEY}@api.example.com/v1"}, "must have no user name, query or fragment"),
        ({"url": f"https://api.example.com/v1?key={KEY}"}, "must have no user name, query or fragment"),
        ({"url": "http://api.example.com/v1", "api_key_env": "SOME_KEY"}, "over http; use https"),
        ({"at_once": 0}, "at_once must be at least 1"),
        ({"tries": 0}, "tries must be at least 1"),
        ({"timeout": 0.0}, "timeout must be above 0"),
        ({"max_tokens": 0}, "max_tokens must be at least 1"),
        ({"temperature": -1.0}, "temperature must be at least 0"),
        ({"top_p": 0.0}, "top_p must be above 0"),
        ({"variation_prompt": "nothing"}, "does not show the candidate"),
    ],
)
def test_settings_that_do_not_fit_are_one_line(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message) as raised:
        EndpointWriter(**{"url": "https://api.example.com/v1", "model": "m", **settings})
    assert "\n" not in str(raised.value)
    assert KEY not in str(raised.value)


def test_a_fingerprint_knows_what_is_asked_and_not_how_often(monkeypatch: pytest.MonkeyPatch) -> None:
    writer = EndpointWriter(url="https://api.example.com/v1", model="m", api_key_env="SOME_KEY")
    monkeypatch.setenv("SOME_KEY", KEY)
    same = replace(writer, api_key_env="OTHER", timeout=3.0, tries=1, at_once=9, url=writer.url + "/")
    assert same.fingerprint == writer.fingerprint
    others: list[dict[str, Any]] = [
        {"url": "https://api.example.com/v2"},
        {"model": "n"},
        {"examples": {None: ["a"]}},
        {"random_prompt": "a"},
        {"variation_prompt": "{text}"},
        {"stop": "a"},
        {"temperature": 0.5},
        {"top_p": 0.5},
        {"max_tokens": 9},
        {"whole": True},
        {"fields": {"top_k": 3}},
    ]
    assert len({writer.fingerprint, *(replace(writer, **other).fingerprint for other in others)}) == 1 + len(others)
    assert writer.name == "m at api.example.com"
