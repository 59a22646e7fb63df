"""A writer of candidates that calls an OpenAI-compatible endpoint: ``/v1/chat/completions`` or ``/v1/completions``.

A request contains a prompt with public text or a synthetic candidate, never a private record. It is nevertheless sent
to the operator of the endpoint, so nothing is sent unless the user names one. The API key is read from an environment
variable and never written to any file, fingerprint or message.
"""

from __future__ import annotations

import hashlib
import json
import os
import random
import threading
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from itertools import islice
from typing import Any
from urllib.parse import urlsplit

from dpassay.base import validate
from dpassay.mechanisms.models.json_requests import PassingError, RefusedError, post
from dpassay.mechanisms.models.prompts import render
from dpassay.mechanisms.models.writers import Prompts, WriterError, example_of, prompts_of

_CHAT, _PLAIN = "/chat/completions", "/completions"
_FIRST_WAIT, _LONGEST_WAIT = 1.0, 300.0  # seconds
_LOCAL = {"localhost", "127.0.0.1", "::1"}


class EndpointError(WriterError):
    """An endpoint that cannot be used; one line. Texts that were finished before are not lost."""


@dataclass(eq=False)
class _Calls:
    """The shared state of the requests of one batch.

    Attributes:
        key: the API key, or None; never shown.
        stopped: set at the first permanent failure, and when no more answers are wanted.
        failure: that failure.
    """

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
        examples: public texts by label; the prompt for a random text shows one of them, chosen by its seed.
        random_prompt: Jinja or `str.format`, with {label} and {example}; None for a default (`prompts_of`).
        variation_prompt: likewise, with {label} and {text}, the candidate.
        stop: a string that ends a text; None for none, or for that of the default prompts.
        temperature: of sampling.
        top_p: the probability mass to sample from, in (0, 1].
        max_tokens: the largest number of tokens of a text.
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
        _ = self._asked  # checks the prompts

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
            self._asked,
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
    def _asked(self) -> Prompts:
        return prompts_of(self.random_prompt, self.variation_prompt, self.stop, chat=self._chat)

    def random(self, label: str | None, seeds: Sequence[int]) -> Iterator[str | None]:
        prompts = [
            render(self._asked.random, {"label": label or "", "example": example_of(self.examples, label, seed)})
            for seed in seeds
        ]
        return self._answers(prompts, seeds)

    def vary(self, texts: Sequence[str], label: str | None, seeds: Sequence[int]) -> Iterator[str | None]:
        prompts = [render(self._asked.variation, {"label": label or "", "text": text}) for text in texts]
        return self._answers(prompts, seeds)

    def _answers(self, prompts: Sequence[str], seeds: Sequence[int]) -> Iterator[str | None]:
        """The texts, in order. After a failure no more are requested, but pending answers are still returned."""
        calls = _Calls(self._key())
        waiting = zip(prompts, seeds, strict=True)
        asked: deque[Future[str]] = deque()
        pool = ThreadPoolExecutor(self.at_once, thread_name_prefix="endpoint")
        try:
            while True:
                if not calls.stopped.is_set():
                    ahead = islice(waiting, 2 * self.at_once - len(asked))
                    asked.extend(pool.submit(self._ask, prompt, seed, calls) for prompt, seed in ahead)
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

    def _ask(self, prompt: str, seed: int, calls: _Calls) -> str:
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
                    wait = _FIRST_WAIT * 2 ** min(attempt, 9) * (1 + random.random() / 4)
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
            "stop": self._asked.stop,
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
