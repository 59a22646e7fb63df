from .assertions import CONFIDENCE as CONFIDENCE
from .assertions import SeededSource as SeededSource
from .assertions import assert_events_hold as assert_events_hold
from .assertions import assert_never_exceeds as assert_never_exceeds
from .assertions import describe_bound as describe_bound
from .assertions import recorded_run as recorded_run
