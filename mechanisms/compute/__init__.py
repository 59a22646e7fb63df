"""Where the work of a run is done: this process, processes of this machine, or the workers of a cluster."""

from __future__ import annotations
