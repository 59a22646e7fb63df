"""A generator as a command: `python toy_generator.py INPUT OUTPUT --do WHAT`, with nothing but the standard library.

    copy      the input: no protection
    noisy     as many rows as the input has, with noise from the seed, and nothing else of it
    fail      ends with exit code 3, and prints its input
    crowded   the same, if there are more records than --most
    nothing   writes no output
    folder    makes a folder in place of the output
    garbage   an output that cannot be read, with records in it
    overwrite copies the input, and puts other records in its place
    slow      sleeps for --seconds, then as noisy
    response  one row, whose city is SECRET-town with a probability that depends on whether a record has it: --rates
    child     begins a process that sleeps, and waits for it: ten minutes after --most runs, until the file --go exists

It appends its process id, those of its children, and the hash of its input to --log.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import random
import shutil
import subprocess
import sys
import time


def _runs(log: str) -> int:
    if not os.path.exists(log):
        return 0
    with open(log) as file:
        return sum(1 for _ in file)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("input")
    parser.add_argument("output")
    parser.add_argument("--do", default="copy")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--seconds", type=float, default=0.0)
    parser.add_argument("--most", type=int, default=0)
    parser.add_argument("--rates", type=float, nargs=2, default=(0.0, 1.0))
    parser.add_argument("--log")
    parser.add_argument("--go", default="")
    given = parser.parse_args()
    with open(given.input, "rb") as file:
        content = file.read()
    pids = [os.getpid()]
    child = None
    if given.do == "child":
        seconds = given.seconds
        if given.go and not os.path.exists(given.go) and _runs(given.log) >= given.most:
            seconds = 600.0
        child = subprocess.Popen([sys.executable, "-S", "-c", f"import time; time.sleep({seconds})"])
        pids.append(child.pid)
    if given.log:
        with open(given.log, "a") as log:
            log.write(json.dumps({"pids": pids, "sha256": hashlib.sha256(content).hexdigest()}) + "\n")
    lines = content.decode(errors="replace").splitlines()
    if given.do == "fail" or (given.do == "crowded" and len(lines) - 1 > given.most):
        print(content.decode(errors="replace"), file=sys.stderr)
        sys.exit(3)
    if child is not None:
        child.wait()
    if given.do == "slow":
        time.sleep(given.seconds)
    if given.do == "nothing":
        return
    if given.do == "folder":
        os.mkdir(given.output)
    elif given.do == "garbage":
        with open(given.output, "wb") as file:
            file.write(b"\xff\xfe" + content)
    elif given.do == "response":
        shown = random.Random(given.seed).random() < given.rates["SECRET-town" in content.decode()]
        with open(given.output, "w") as file:
            file.write(f"age,city,note\n30,{'SECRET-town' if shown else 'north'},a b c d e\n")
    elif given.do in ("noisy", "slow", "child", "crowded"):
        drawn = random.Random(given.seed)
        noise = int(drawn.expovariate(0.2)) - int(drawn.expovariate(0.2))
        rows = [f"{drawn.randint(20, 60)},{drawn.choice(['north', 'south'])},a b c d e"] * max(0, len(lines) + noise)
        with open(given.output, "w") as file:
            file.write("\n".join(["age,city,note", *rows]) + "\n")
    else:
        shutil.copyfile(given.input, given.output)
    if given.do == "overwrite":
        with open(given.input, "a") as file:
            file.write(f"{lines[-1]}\n" * 50)


if __name__ == "__main__":
    main()
