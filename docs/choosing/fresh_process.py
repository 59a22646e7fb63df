"""Runs a command in a process of its own and says what it used, so that no other run's memory or time is counted.

    python fresh_process.py USED.json COMMAND…

This process is small: the peak memory that a system reports of a process is at least that of the one that started it.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path


def main() -> int:
    start = time.perf_counter()
    child = subprocess.Popen(sys.argv[2:])
    _, status, used = os.wait4(child.pid, 0)
    kilobytes = used.ru_maxrss if sys.platform == "linux" else used.ru_maxrss // 1024
    found = {
        "seconds": time.perf_counter() - start,
        "cpu_seconds": used.ru_utime + used.ru_stime,
        "memory": kilobytes / 1024,  # MiB
    }
    Path(sys.argv[1]).write_text(json.dumps(found), encoding="utf-8")
    return os.waitstatus_to_exitcode(status)


if __name__ == "__main__":
    sys.exit(main())
