"""JSON requests with the standard library: bounded in size and time, without redirects.

Nothing is logged. An API key is sent in one header and appears nowhere else, including errors.
"""

from __future__ import annotations

import email.utils
import http.client
import json
import math
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


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    """Disables redirects, which would send the key to another host."""

    def redirect_request(self, *args: Any, **kwargs: Any) -> None:
        return None


_OPENER = urllib.request.build_opener(_NoRedirect)


def post(address: str, body: Mapping[str, object], *, key: str | None, timeout: float) -> Any:
    """Posts JSON to a server and returns its answer.

    Args:
        address: http or https.
        body: sent as JSON.
        key: sent as ``Authorization: Bearer``; None for none.
        timeout: of the connection, and of the answer, in seconds.

    Raises:
        PassingError: no connection, a timeout, an answer that is not JSON, or a status that may be temporary.
        RefusedError: any other error status.
    """
    headers = {"Content-Type": "application/json", "Accept": "application/json", "User-Agent": "cupel"}
    if key is not None:
        headers["Authorization"] = f"Bearer {key}"
    request = urllib.request.Request(address, json.dumps(body).encode(), headers)
    deadline = time.monotonic() + timeout
    try:
        with _OPENER.open(request, timeout=timeout) as response:
            return json.loads(_read(response, deadline))
    except urllib.error.HTTPError as error:
        with error:
            raise _refused(error, key, deadline) from None
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


def _refused(error: urllib.error.HTTPError, key: str | None, deadline: float) -> PassingError | RefusedError:
    """The exception for an error status. A server's message about a refused key may quote it, so it is not used."""
    if error.code in (401, 403):
        return RefusedError(f"HTTP {error.code}", error.code, None)
    told, code = _told(error, deadline)
    if key is not None:
        told = told.replace(key, "…")
    what = f"HTTP {error.code}" + (f" ({told[:_LONGEST_TOLD]})" if told else "")
    if error.code in _PASSING or 500 <= error.code < 600:
        return PassingError(what, _retry_after(error.headers.get("Retry-After")))
    return RefusedError(what, error.code, code)


def _read(response: Any, deadline: float) -> bytes:
    """Reads a whole answer, limited in size and time."""
    content = bytearray()
    while block := response.read1(1 << 16):
        content += block
        if len(content) > _LONGEST_ANSWER:
            raise PassingError(f"an answer of over {_LONGEST_ANSWER} bytes")
        if time.monotonic() > deadline:
            raise TimeoutError
    return bytes(content)


def _told(error: urllib.error.HTTPError, deadline: float) -> tuple[str, object]:
    """A server's error message, in one line, and its error code."""
    try:
        about = json.loads(_read(error, deadline))["error"]
    except (OSError, http.client.HTTPException, PassingError, ValueError, TypeError, LookupError, RecursionError):
        return "", None
    told, code = (about.get("message"), about.get("code")) if isinstance(about, dict) else (about, None)
    printable = (char if char.isprintable() else " " for char in str(told or ""))
    return " ".join("".join(printable).split()), code


def _retry_after(header: str | None) -> float | None:
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
