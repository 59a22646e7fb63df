"""A scheduler of dask and its workers, as processes of their own, which tests kill."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

TTL = 5
"""Seconds of silence after which a worker is given up."""


class Dask:
    """A scheduler and its workers, each of which makes one run at a time.

    Args:
        folder: for what they write.
    """

    def __init__(self, folder: Path) -> None:
        self.folder, self._file, self._number = folder, folder / "scheduler.json", 0
        self.workers: list[subprocess.Popen[bytes]] = []
        self._scheduler = self._start("scheduler", "--host", "127.0.0.1", "--port", "0")
        end = time.monotonic() + 60
        while not self._file.exists() or not self._file.read_text().endswith("}"):
            assert time.monotonic() < end, "the scheduler did not start"
            time.sleep(0.05)
        self.address: str = json.loads(self._file.read_text())["address"]

    def _start(self, what: str, *options: str) -> subprocess.Popen[bytes]:
        self._number += 1
        with (self.folder / f"{what}-{self._number}.log").open("wb") as log:
            command = [sys.executable, "-m", f"distributed.cli.dask_{what}", "--scheduler-file", str(self._file)]
            # Workers import what tests send them from this folder.
            short = {"DASK_DISTRIBUTED__SCHEDULER__WORKER_TTL": f"{TTL}s", "PYTHONPATH": str(Path(__file__).parent)}
            return subprocess.Popen(
                [*command, "--no-dashboard", *options], stdout=log, stderr=log, env={**os.environ, **short}
            )

    def add_worker(self) -> None:
        """Starts one more."""
        local = ("--local-directory", str(self.folder / "local"))
        self.workers.append(self._start("worker", "--nthreads", "1", "--no-nanny", "--host", "127.0.0.1", *local))

    def kill_worker(self) -> None:
        """Kills the oldest worker, without a word to anybody."""
        process = self.workers.pop(0)
        process.send_signal(signal.SIGKILL)
        process.wait()

    def kill_scheduler(self) -> None:
        """Kills the scheduler."""
        self._scheduler.kill()
        self._scheduler.wait()

    def pause_worker(self, seconds: float) -> None:
        """Stops the oldest worker for some time, as a network that is cut does."""
        process = self.workers[0]
        process.send_signal(signal.SIGSTOP)
        time.sleep(seconds)
        process.send_signal(signal.SIGCONT)

    def wait_for_workers(self, count: int) -> None:
        """Until so many workers are known."""
        from distributed import Client

        with Client(self.address, set_as_default=False) as client:
            client.wait_for_workers(count, timeout=60)

    def close(self) -> None:
        """Ends all processes."""
        for process in (*self.workers, self._scheduler):
            with contextlib.suppress(ProcessLookupError):
                os.kill(process.pid, signal.SIGKILL)
            process.wait()


@contextlib.contextmanager
def dask(folder: Path, workers: int) -> Iterator[Dask]:
    """A scheduler with so many workers."""
    folder.mkdir()
    cluster = Dask(folder)
    try:
        for _ in range(workers):
            cluster.add_worker()
        if workers:
            cluster.wait_for_workers(workers)
        yield cluster
    finally:
        cluster.close()
