"""A writer of candidates that calls an OpenAI-compatible endpoint: ``/v1/chat/completions`` or ``/v1/completions``.

A request contains a prompt with public text or a synthetic candidate, never a private record. It is nevertheless sent
to the operator of the endpoint, so nothing is sent unless the user names one. The API key is read from an environment
variable, sent in one header and never written to any file, log, fingerprint or message. Requests are made with the
standard library, bounded in size and time, and follow no redirects.
"""

from __future__ import annotations

import email.utils
import functools
import hashlib
import http.client
import io
import json
import math
import os
import random
import socket
import threading
import time
import urllib.error
import urllib.request
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from itertools import islice
from typing import Any
from urllib.parse import urlsplit

from dpassay.base import validate
from dpassay.mechanisms.models.prompts import render
from dpassay.mechanisms.models.writers import Prompts, WriterError, example_of, prompts_of

_CHAT, _PLAIN = "/chat/completions", "/completions"
FIRST_WAIT, _LONGEST_WAIT = 1.0, 300.0  # seconds
_LOCAL = {"localhost", "127.0.0.1", "::1"}
LONGEST_ANSWER = 2**23  # bytes
_LONGEST_TOLD = 200  # characters of a server's error message
_PASSING = {408, 409, 425, 429, 529}  # status codes below 500, or non-standard, that may be temporary


class EndpointError(WriterError):
    """An endpoint that cannot be used; one line. Texts that were finished before are not lost."""


class PassingError(Exception):
    """A failure that may be temporary, and the seconds that the server asks to wait, or None."""

    def __init__(self, what: str, wait: float | None = None) -> None:
        super().__init__(what)
        self.wait = wait


class RefusedError(Exception):
    """An error status of HTTP that is permanent, and the server's name of the error, or None."""

    def __init__(self, what: str, status: int, code: object) -> None:
        super().__init__(what)
        self.status, self.code = status, code


@dataclass(eq=False)
class Calls:
    """The shared state of the requests of one batch, stopped at the first permanent failure, and when no more answers
    are wanted. The API key is never shown."""

    key: str | None = field(repr=False)
    stopped: threading.Event = field(default_factory=threading.Event)
    failure: EndpointError | None = None
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def failed(self, error: EndpointError) -> EndpointError:
        """Stops the other requests; returns the error that came first."""
        with self._lock:
            if not self.stopped.is_set():
                self.failure = error
                self.stopped.set()
        return self.failure or error


@dataclass(frozen=True, kw_only=True)
class EndpointWriter:
    """Requests texts from a server, several at a time.

    Attributes:
        url: of the endpoint, for example ``https://api.example.com/v1`` or ``http://127.0.0.1:8000/v1/completions``;
            ``/chat/completions`` is added if it ends in neither. No user name, query or fragment.
        model: its name on the server.
        api_key_env: the environment variable with the API key; None sends none.
        examples, random_prompt, variation_prompt, stop, temperature, top_p, max_tokens: as of `ModelWriter`.
        whole: whether a text that reached `max_tokens` is rejected and requested again.
        fields: further fields of every request; a value of None removes the field.
        at_once: number of simultaneous requests.
        timeout: of one answer, in seconds.
        tries: number of attempts for failures that may be temporary (429, 5xx, no connection, timeout, invalid answer),
            after 1, 2, 4, … seconds or as the endpoint requests in Retry-After.
    """

    url: str
    model: str
    api_key_env: str | None = None
    examples: Mapping[str | None, Sequence[str]] = field(default_factory=dict)
    random_prompt: str | None = None
    variation_prompt: str | None = None
    stop: str | None = None
    temperature: float = 1.0
    top_p: float = 1.0
    max_tokens: int = 256
    whole: bool = False
    fields: Mapping[str, object] = field(default_factory=dict)
    at_once: int = 4
    timeout: float = 60.0
    tries: int = 6

    def __post_init__(self) -> None:
        try:
            parts = urlsplit(self.url)
            host, _ = parts.hostname, parts.port
        except ValueError:
            raise ValueError("url of the endpoint must be a URL such as https://api.example.com/v1") from None
        if parts.scheme not in ("http", "https") or not host:
            raise ValueError("url of the endpoint must begin with https:// or http:// and name a host")
        if "@" in parts.netloc or parts.query or parts.fragment:
            raise ValueError(
                "url of the endpoint must have no user name, query or fragment; the key comes from an environment "
                "variable, named in api_key_env"
            )
        if self.api_key_env is not None and parts.scheme == "http" and host not in _LOCAL:
            raise ValueError(f"url of the endpoint: a key is not sent to {host} over http; use https")
        validate.non_negative(temperature=self.temperature)
        validate.positive(timeout=self.timeout)
        for name in ("max_tokens", "at_once", "tries"):
            validate.integer(minimum=1, **{name: getattr(self, name)})
        if validate.probability(top_p=self.top_p) == 0:
            raise ValueError("top_p must be above 0 and at most 1, not 0")
        _ = self.asked  # checks the prompts

    @property
    def name(self) -> str:
        return f"{self.model} at {self._host}"

    @property
    def fingerprint(self) -> str:
        """SHA-256 over everything known that determines a text; an endpoint may change its model without notice."""
        settings = (
            self._address,
            self.model,
            sorted((str(label), tuple(texts)) for label, texts in self.examples.items()),
            self.asked,
            (self.temperature, self.top_p, self.max_tokens, self.whole),
            json.dumps(dict(self.fields), sort_keys=True),
        )
        return hashlib.sha256(repr(settings).encode("utf-8", "surrogatepass")).hexdigest()

    @property
    def _host(self) -> str:
        return urlsplit(self.url).netloc

    @property
    def _address(self) -> str:
        url = self.url.rstrip("/")
        return url if url.endswith(_PLAIN) else url + _CHAT  # _CHAT ends in _PLAIN

    @property
    def _chat(self) -> bool:
        return self._address.endswith(_CHAT)

    @property
    def asked(self) -> Prompts:
        return prompts_of(self.random_prompt, self.variation_prompt, self.stop, chat=self._chat)

    def random(self, label: str | None, seeds: Sequence[int]) -> Iterator[str | None]:
        prompts = [
            render(self.asked.random, {"label": label or "", "example": example_of(self.examples, label, seed)})
            for seed in seeds
        ]
        return self._answers(prompts, seeds)

    def vary(self, texts: Sequence[str], label: str | None, seeds: Sequence[int]) -> Iterator[str | None]:
        prompts = [render(self.asked.variation, {"label": label or "", "text": text}) for text in texts]
        return self._answers(prompts, seeds)

    def _answers(self, prompts: Sequence[str], seeds: Sequence[int]) -> Iterator[str | None]:
        """The texts, in order. After a failure no more are requested, but pending answers are still returned."""
        calls = Calls(self._key())
        waiting = zip(prompts, seeds, strict=True)
        asked: deque[Future[str]] = deque()
        pool = ThreadPoolExecutor(self.at_once, thread_name_prefix="endpoint")
        try:
            while True:
                if not calls.stopped.is_set():
                    ahead = islice(waiting, 2 * self.at_once - len(asked))
                    asked.extend(pool.submit(self.ask, prompt, seed, calls) for prompt, seed in ahead)
                if not asked:
                    break
                try:
                    text: str | None = asked.popleft().result()
                except EndpointError:
                    text = None
                yield text
        finally:
            calls.stopped.set()
            pool.shutdown(cancel_futures=True)
        if calls.failure is not None:
            raise calls.failure

    def check(self) -> None:
        """Checks that the API key is set, if one is needed; nothing is sent.

        Raises:
            EndpointError: if it is not set.
        """
        self._key()

    def _key(self) -> str | None:
        if self.api_key_env is None:
            return None
        key = os.environ.get(self.api_key_env, "").strip()
        if not key or not key.isascii() or not key.isprintable():
            raise EndpointError(f"endpoint {self._host}: the environment variable {self.api_key_env} has no API key")
        return key

    def ask(self, prompt: str, seed: int, calls: Calls) -> str:
        """Requests one text, with retries.

        Raises:
            EndpointError: for a permanent failure, or if another request had one.
        """
        body, what = self._body(prompt, seed), "another request failed first"
        for attempt in range(self.tries):
            if calls.stopped.is_set():
                break
            try:
                return self._text(post(self._address, body, key=calls.key, timeout=self.timeout))
            except RefusedError as error:
                if error.code == "content_filter":
                    return ""
                what = self._told(error)
                break
            except PassingError as error:
                what = str(error) if attempt == 0 else f"{error}, after {attempt + 1} tries"
                if attempt + 1 < self.tries:
                    wait = FIRST_WAIT * 2 ** min(attempt, 9) * (1 + random.random() / 4)
                    calls.stopped.wait(min(max(wait, error.wait or 0.0), _LONGEST_WAIT))
        raise calls.failed(
            EndpointError(
                f"endpoint {self._host}: {what}. The finished texts are saved; the same command resumes from there"
            )
        )

    def _told(self, error: RefusedError) -> str:
        if error.status not in (401, 403):
            return str(error)
        key = "no API key was sent; name its environment variable in api_key_env"
        if self.api_key_env is not None:
            key = f"the API key in the environment variable {self.api_key_env} is not accepted"
        return f"{error}: {key}"

    def _body(self, prompt: str, seed: int) -> dict[str, object]:
        body: dict[str, object] = {
            "model": self.model,
            **({"messages": [{"role": "user", "content": prompt}]} if self._chat else {"prompt": prompt}),
            "temperature": self.temperature,
            "top_p": self.top_p,
            "max_tokens": self.max_tokens,
            "seed": seed % 2**31,
            "stop": self.asked.stop,
            **self.fields,
        }
        return {name: value for name, value in body.items() if value is not None}

    def _text(self, answer: Any) -> str:
        """The text of an answer; empty if it is rejected.

        Raises:
            PassingError: if the answer is not a completion.
        """
        try:
            choice = answer["choices"][0]
            text = choice["message"]["content"] if self._chat else choice["text"]
            cut = choice.get("finish_reason") == "length"
        except (TypeError, LookupError, AttributeError):
            raise PassingError("an answer that is not a completion") from None
        if text is not None and not isinstance(text, str):
            raise PassingError("an answer that is not a completion")
        return "" if text is None or (cut and self.whole) else text


class _Timed(io.RawIOBase):
    """What a server sends, until a deadline. The timeout of a socket alone starts anew with each byte."""

    def __init__(self, connection: socket.socket, content: io.RawIOBase, deadline: float) -> None:
        self._connection, self._content, self._deadline = connection, content, deadline

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int | None:
        self._connection.settimeout(_remaining(self._deadline))
        return self._content.readinto(buffer)

    def close(self) -> None:
        self._content.close()
        super().close()


class _Answer(http.client.HTTPResponse):
    """An answer whose status lines, headers and content together come before a deadline."""

    def __init__(self, sock: socket.socket, *args: Any, deadline: float, **options: Any) -> None:
        super().__init__(sock, *args, **options)
        self.fp: Any = io.BufferedReader(_Timed(sock, self.fp.detach(), deadline))


class _Bounded(http.client.HTTPConnection):
    """A connection whose timeout bounds all of it: finding the host, connecting, sending and the answer."""

    def __init__(self, host: str, *, timeout: float, **options: Any) -> None:
        super().__init__(host, timeout=timeout, **options)
        self._deadline = time.monotonic() + timeout
        self._create_connection = self._connected
        self.response_class = functools.partial(_Answer, deadline=self._deadline)  # type: ignore[assignment]

    def _connected(self, address: tuple[str, int], *_: object) -> socket.socket:
        """A connection to the first address of a host that accepts one."""
        failure: OSError = OSError(f"{address[0]} has no address")
        for result in _addresses(address, self._deadline):
            try:
                connected = socket.create_connection(result, _remaining(self._deadline))
            except TimeoutError:
                raise
            except OSError as error:
                failure = error
                continue
            connected.settimeout(max(self._deadline - time.monotonic(), 1e-3))  # also of the handshake of TLS
            return connected
        raise failure

    def send(self, data: Any) -> None:
        if self.sock is None:
            self.connect()
        self.sock.settimeout(_remaining(self._deadline))
        super().send(data)


class _BoundedTLS(_Bounded, http.client.HTTPSConnection):
    """The same with TLS."""


class _HTTPHandler(urllib.request.HTTPHandler):
    def http_open(self, req: urllib.request.Request) -> http.client.HTTPResponse:
        return self.do_open(_Bounded, req)  # type: ignore[arg-type]


class _HTTPSHandler(urllib.request.HTTPSHandler):
    def https_open(self, req: urllib.request.Request) -> http.client.HTTPResponse:
        return self.do_open(_BoundedTLS, req)  # type: ignore[arg-type]


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    """Disables redirects, which would send the key to another host."""

    def redirect_request(self, *args: Any, **kwargs: Any) -> None:
        return None


_OPENER = urllib.request.build_opener(_HTTPHandler, _HTTPSHandler, _NoRedirect)


def post(address: str, body: Mapping[str, object], *, key: str | None, timeout: float) -> Any:
    """Posts JSON to a server and returns its answer.

    Args:
        address: http or https.
        body: sent as JSON.
        key: sent as ``Authorization: Bearer``; None for none.
        timeout: of the whole call, from finding the host to the last byte of the answer, in seconds.

    Raises:
        PassingError: no connection, a timeout, an answer that is not JSON, or a status that may be temporary.
        RefusedError: any other error status.
    """
    headers = {"Content-Type": "application/json", "Accept": "application/json", "User-Agent": "dpassay"}
    if key is not None:
        headers["Authorization"] = f"Bearer {key}"
    request = urllib.request.Request(address, json.dumps(body).encode(), headers)
    try:
        with _OPENER.open(request, timeout=timeout) as response:
            return json.loads(_read(response))
    except urllib.error.HTTPError as error:
        with error:
            raise _refused(error, key) from None
    except TimeoutError:
        raise PassingError(f"no answer in {timeout:g} seconds") from None
    except urllib.error.URLError as error:
        if isinstance(error.reason, TimeoutError):
            raise PassingError(f"no answer in {timeout:g} seconds") from None
        reason = error.reason.strerror if isinstance(error.reason, OSError) else None
        raise PassingError(f"no connection ({reason or type(error.reason).__name__})") from None
    except (OSError, http.client.HTTPException) as error:
        raise PassingError(f"the connection broke ({type(error).__name__})") from None
    except (ValueError, RecursionError):
        raise PassingError("an answer that is not JSON") from None


def _refused(error: urllib.error.HTTPError, key: str | None) -> PassingError | RefusedError:
    """The exception for an error status. A server's message about a refused key may quote it, so it is not used."""
    if error.code in (401, 403):
        return RefusedError(f"HTTP {error.code}", error.code, None)
    message, code = _told(error)
    if key is not None:
        message = message.replace(key, "…")
    what = f"HTTP {error.code}" + (f" ({message[:_LONGEST_TOLD]})" if message else "")
    if error.code in _PASSING or 500 <= error.code < 600:
        return PassingError(what, retry_after(error.headers.get("Retry-After")))
    return RefusedError(what, error.code, code)


def _remaining(deadline: float) -> float:
    """The seconds until a deadline.

    Raises:
        TimeoutError: if it has passed.
    """
    remaining = deadline - time.monotonic()
    if remaining <= 0:
        raise TimeoutError
    return remaining


def _addresses(address: tuple[str, int], deadline: float) -> list[tuple[str, int]]:
    """The addresses of a host, which the system looks up without a timeout, hence in a thread of its own."""
    results: list[Any] = []

    def look_up() -> None:
        try:
            results.extend(index[:2] for *_, index in socket.getaddrinfo(*address, type=socket.SOCK_STREAM))
        except (OSError, UnicodeError) as error:  # also of a name that has no form in the domain name system
            results.append(error)

    thread = threading.Thread(target=look_up, daemon=True)
    thread.start()
    thread.join(_remaining(deadline))
    if thread.is_alive():
        raise TimeoutError
    if results and isinstance(results[0], Exception):
        raise results[0]
    return results


def _read(response: Any) -> bytes:
    """Reads a whole answer, limited in size."""
    content = bytearray()
    while block := response.read1(1 << 16):
        content += block
        if len(content) > LONGEST_ANSWER:
            raise PassingError(f"an answer of over {LONGEST_ANSWER} bytes")
    return bytes(content)


def _told(error: urllib.error.HTTPError) -> tuple[str, object]:
    """A server's error message, in one line, and its error code."""
    try:
        about = json.loads(_read(error))["error"]
    except (OSError, http.client.HTTPException, PassingError, ValueError, TypeError, LookupError, RecursionError):
        return "", None
    message, code = (about.get("message"), about.get("code")) if isinstance(about, dict) else (about, None)
    printable = (char if char.isprintable() else " " for char in str(message or ""))
    return " ".join("".join(printable).split()), code


def retry_after(header: str | None) -> float | None:
    """The seconds in a Retry-After header, which is a number or a date."""
    if header is None:
        return None
    try:
        seconds = float(header)
    except ValueError:
        try:
            seconds = email.utils.parsedate_to_datetime(header).timestamp() - time.time()
        except (ValueError, TypeError, OverflowError):
            return None
    return seconds if math.isfinite(seconds) and seconds > 0 else None
