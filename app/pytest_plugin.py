"""The pytest fixture `privacy_audit`: `dpassay.testing.assert_never_exceeds` with options for test-suites.

pytest loads this file wherever dpassay is installed; the rest of dpassay is loaded when the fixture is used.
``-p no:dpassay`` turns it off.
"""

from __future__ import annotations

import hashlib
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from dpassay.accounting.bounds import Bound
    from dpassay.accounting.guarantees import Guarantee

_PROPERTY = "privacy audit"


def pytest_addoption(parser: pytest.Parser) -> None:
    """The options of the plugin."""
    group = parser.getgroup("dpassay", "privacy audits")
    group.addoption(
        "--dpassay-workers", type=int, default=1, metavar="N", help="processes that run the mechanism of an audit (1)"
    )
    group.addoption(
        "--dpassay-resume",
        action="store_true",
        help="keep outputs in pytest's cache until an audit is done, so that an interrupted one resumes",
    )


@pytest.fixture
def privacy_audit(request: pytest.FixtureRequest) -> Callable[..., tuple[Bound, ...]]:
    """`dpassay.testing.assert_never_exceeds`, with ``--dpassay-workers``, ``--dpassay-resume`` and a summary line."""
    from dpassay.testing.assertions import assert_never_exceeds, describe_bound

    folders = _folders(request)

    def audit(mechanism: Callable[..., Any], claim: Guarantee, **options: Any) -> tuple[Bound, ...]:
        __tracebackhide__ = True
        folder = next(folders)
        options = {"workers": request.config.getoption("--dpassay-workers"), "folder": folder, **options}
        try:
            bounds = assert_never_exceeds(mechanism, claim, **options)
        except AssertionError:
            _discard(folder)
            raise
        _discard(folder)
        request.node.user_properties.extend((_PROPERTY, describe_bound(mechanism, claim, bound)) for bound in bounds)
        return bounds

    return audit


def _folders(request: pytest.FixtureRequest) -> Iterator[Path | None]:
    """A folder for the outputs of each audit of a test; None if outputs are not kept."""
    if not request.config.getoption("--dpassay-resume"):
        while True:
            yield None
    if request.config.cache is None:
        raise pytest.UsageError("--dpassay-resume keeps outputs in pytest's cache, which is turned off")
    name = hashlib.sha256(request.node.nodeid.encode()).hexdigest()[:16]
    count = 0
    while True:
        yield request.config.cache.mkdir("dpassay") / f"{name}-{count}"
        count += 1


def _discard(folder: Path | None) -> None:
    if folder is not None:
        shutil.rmtree(folder, ignore_errors=True)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Prints the bound and the ceiling of each audit that passed."""
    lines = [
        f"{report.nodeid}: {value}"
        for report in terminalreporter.stats.get("passed", [])
        for name, value in getattr(report, "user_properties", [])
        if name == _PROPERTY and report.when == "call"
    ]
    if lines:
        terminalreporter.section("privacy audits")
        for line in lines:
            terminalreporter.line(line)
