"""Property tests: `make test` tries the same examples every time, so that a change fails it and luck does not.

`make verify` draws new ones. No test writes into the home of whoever runs it.
"""

from collections.abc import Iterator

import pytest
from hypothesis import settings

settings.register_profile("repeatable", deadline=None, derandomize=True)  # times vary with what else the machine does
settings.register_profile("random", deadline=None)
settings.load_profile("repeatable")


@pytest.fixture(scope="session", autouse=True)
def state_folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Anchors of ledgers go into a folder of the tests, in the processes that they start, too."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_STATE_HOME", str(tmp_path_factory.mktemp("state")))
        yield
