"""Which cases are run, and what is shared.

`make test` tries the same examples every time, so that a change fails it and luck does not; of a grid it runs a fifth.
`make verify`, whose Hypothesis profile is `random`, draws new examples, and more, and leaves nothing out. No test
writes into the home of whoever runs it.
"""

from __future__ import annotations

import re
import signal
import zlib
from collections import defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings

pytest_plugins = ["shared_work"]

settings.register_profile("repeatable", deadline=None, derandomize=True)  # times vary with what else the machine does
settings.register_profile("random", deadline=None)
settings.load_profile("repeatable")

SHARE = 5
"""`make test` runs one case of so many of a grid, where its marker names no other `share`."""
BOTH = ("figures_drawn_once", "models_loaded_once")
SHARED: dict[str, Sequence[str]] = {
    "app": BOTH,
    "auditing": BOTH,
    "base": BOTH,
    "claims": BOTH,
    "examples": BOTH[1:],
    "generators": BOTH,
    "reports": BOTH[:1],
    "utility": BOTH,
}
"""The folders of tests that run whole jobs, and what is done once for them."""


def sampled(grid: Sequence[Any]) -> set[Any]:
    """A share of the cases of one test, and with every value of the parameters that its marker names."""
    share = max(marker.kwargs.get("share", SHARE) for marker in grid[0].iter_markers("grid"))
    names = {name for item in grid for marker in item.iter_markers("grid") for name in marker.args}
    seen, kept = set[tuple[str, str]](), list[Any]()
    for item in (ordered := sorted(grid, key=lambda item: zlib.crc32(item.name.encode()))):
        values = {(name, repr(item.callspec.params[name])) for name in names}
        if not values <= seen:
            seen |= values
            kept.append(item)
    rest = [item for item in ordered if item not in kept]
    return {*kept, *rest[: max(0, -(-len(grid) // share) - len(kept))]}


def case_of(node: str) -> str:
    """A case without the folders of its file."""
    file, _, case = node.partition("::")
    return f"{Path(file).name}::{case}"


def cases_of_known_faults() -> frozenset[str]:
    """The cases that `mutants.py` names, by which known faults are noticed."""
    text = Path(__file__).with_name("mutants.py").read_text()
    for name, value in reversed(re.findall(r'^([A-Z_]+) = f?"(.+)"$', text, re.MULTILINE)):
        text = text.replace(f"{{{name}}}", value)
    return frozenset(map(case_of, re.findall(r'"(tests/[^"]+\[[^"]+\])"', text)))


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leaves out the other cases of each grid, unless examples are new every time. A case that is named is run, and
    one by which a known fault is noticed."""
    if not settings.default or not settings.default.derandomize:
        return
    always = cases_of_known_faults().union(case_of(argument) for argument in config.args if "[" in argument)
    grids = defaultdict[str, list[pytest.Item]](list)
    for item in items:
        if case_of(item.nodeid) in always:
            continue
        if item.get_closest_marker("grid") and not item.get_closest_marker("slow"):
            grids[item.nodeid.partition("[")[0]].append(item)
    left_out = {item for grid in grids.values() for item in {*grid} - sampled(grid)}
    config.hook.pytest_deselected(items=[item for item in items if item in left_out])
    items[:] = [item for item in items if item not in left_out]


@pytest.fixture(scope="session", autouse=True)
def state_folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Anchors of ledgers go into a folder of the tests, in the processes that they start, too."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_STATE_HOME", str(tmp_path_factory.mktemp("state")))
        yield


@pytest.fixture(scope="module", autouse=True)
def shared_work(request: pytest.FixtureRequest) -> None:
    """Models are loaded, and figures drawn, once a process where tests run whole jobs; others do not wait for torch."""
    folder = request.path.relative_to(Path(__file__).parent).parts[0]
    for name in SHARED.get(folder, ()):
        request.getfixturevalue(name)


@pytest.fixture
def interruptible() -> Iterator[None]:
    """SIGINT interrupts, though a shell that starts the tests in the background has it ignored."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)
