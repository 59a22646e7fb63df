"""JSON requests with the standard library: bounded in size and time, without redirects.

Nothing is logged. An API key is sent in one header and appears nowhere else, including errors.
"""

from __future__ import annotations

import email.utils
import functools
import http.client
import io
import json
import math
import socket
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Mapping
from typing import Any

_LONGEST_ANSWER = 2**23  # bytes
_LONGEST_TOLD = 200  # characters of a server's error message
_PASSING = {408, 409, 425, 429, 529}  # status codes below 500, or non-standard, that may be temporary


class PassingError(Exception):
    """A failure that may be temporary.

    Attributes:
        wait: seconds that the server asks to wait, or None.
    """

    def __init__(self, what: str, wait: float | None = None) -> None:
        super().__init__(what)
        self.wait = wait


class RefusedError(Exception):
    """An error status that is permanent.

    Attributes:
        status: of HTTP.
        code: the server's name of the error, or None.
    """

    def __init__(self, what: str, status: int, code: object) -> None:
        super().__init__(what)
        self.status, self.code = status, code


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
        if len(content) > _LONGEST_ANSWER:
            raise PassingError(f"an answer of over {_LONGEST_ANSWER} bytes")
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
