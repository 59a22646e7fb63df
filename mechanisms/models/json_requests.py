"""JSON sent to a server and its answer, with the standard library: bounded in size and time, no redirects.

Nothing here logs. An API key goes into one header and nowhere else, no error included.
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
_LONGEST_TOLD = 200  # characters of what a server says about an error
_PASSING = {408, 409, 425, 429, 529}  # statuses below 500, or of no standard, that may go away


class PassingError(Exception):
    """A failure that may go away.

    Attributes:
        wait: seconds that the server asks to wait, or None.
    """

    def __init__(self, what: str, wait: float | None = None) -> None:
        super().__init__(what)
        self.wait = wait


class RefusedError(Exception):
    """An answer with the status of an error that will not go away.

    Attributes:
        status: of HTTP.
        code: what the server calls the error, or None.
    """

    def __init__(self, what: str, status: int, code: object) -> None:
        super().__init__(what)
        self.status, self.code = status, code


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    """A redirect would carry the key to another host."""

    def redirect_request(self, *args: Any, **kwargs: Any) -> None:
        return None


_OPENER = urllib.request.build_opener(_NoRedirect)


def post(address: str, body: Mapping[str, object], *, key: str | None, timeout: float) -> Any:
    """What a server answers, as JSON.

    Args:
        address: http or https.
        body: sent as JSON.
        key: sent as ``Authorization: Bearer``; None for none.
        timeout: seconds for the connection, and for the answer.

    Raises:
        PassingError: no connection, no answer in time, an answer that is no JSON, or a status that may go away.
        RefusedError: any other status but success.
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
    """What an answer with the status of an error means. What a server says about a refused key may quote it."""
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
    """A whole answer, of a bounded size and in time."""
    content = bytearray()
    while block := response.read1(1 << 16):
        content += block
        if len(content) > _LONGEST_ANSWER:
            raise PassingError(f"an answer of over {_LONGEST_ANSWER} bytes")
        if time.monotonic() > deadline:
            raise TimeoutError
    return bytes(content)


def _told(error: urllib.error.HTTPError, deadline: float) -> tuple[str, object]:
    """What a server says about an error, in one line, and its code for it."""
    try:
        about = json.loads(_read(error, deadline))["error"]
    except (OSError, http.client.HTTPException, PassingError, ValueError, TypeError, LookupError, RecursionError):
        return "", None
    told, code = (about.get("message"), about.get("code")) if isinstance(about, dict) else (about, None)
    printable = (char if char.isprintable() else " " for char in str(told or ""))
    return " ".join("".join(printable).split()), code


def _retry_after(header: str | None) -> float | None:
    """Seconds that a Retry-After header asks for: a number, or a date."""
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
