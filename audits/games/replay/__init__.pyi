from .record_replay import Finding as Finding
from .record_replay import assert_events_hold as assert_events_hold
from .record_replay import record_replay_findings as record_replay_findings
