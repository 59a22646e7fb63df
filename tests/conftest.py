"""Property tests: `make test` tries the same examples every time, so that a change fails it and luck does not.

`make verify` draws new ones.
"""

from hypothesis import settings

settings.register_profile("repeatable", deadline=None, derandomize=True)  # times vary with what else the machine does
settings.register_profile("random", deadline=None)
settings.load_profile("repeatable")
