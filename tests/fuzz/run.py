"""Runs the fuzzer: ``python tests/fuzz/run.py --cases 20000``, or one case again: ``--case 17``.

Prints every case with a fault, then a summary; exits 1 if there was any.
"""

from __future__ import annotations

import argparse
import os
import shutil
import sys
import tempfile
import time
from pathlib import Path

for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ[name] = "1"
os.environ["TOKENIZERS_PARALLELISM"] = "false"
sys.path[:0] = [str(Path(__file__).parent), str(Path(__file__).parent.parent / "helpers")]

import fuzz_faults  # noqa: E402
import fuzz_runner  # noqa: E402
from fuzz_inputs import make_inputs  # noqa: E402


def main() -> int:
    """Parses the command line and runs cases."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cases", type=int, default=500, help="how many")
    parser.add_argument("--first", type=int, default=0, help="number of the first")
    parser.add_argument("--case", type=int, help="one case only, with all that it printed")
    parser.add_argument("--stride", type=int, default=1, help="only each so many-th case, to share them out")
    parser.add_argument("--seconds", type=float, default=1e9, help="begins no case after so long")
    parser.add_argument("--command", help="only cases of commands whose name begins so")
    parser.add_argument(
        "--faults",
        action="store_true",
        help="puts old faults back; each must be found by --cases",
    )
    parser.add_argument("--keep", action="store_true", help="keeps the folder of --case")
    options = parser.parse_args()
    fuzz_runner.warm_up()
    top = Path(tempfile.mkdtemp(prefix="dpassay-fuzz-"))
    try:
        os.environ["XDG_STATE_HOME"] = str(top / "state")
        inputs = top / "inputs"
        inputs.mkdir()
        make_inputs(inputs)
        fuzz_runner.remember_own_size()
        if options.faults:
            return int(fuzz_faults.find_all(inputs, top, options.cases))
        numbers = range(options.first, options.first + options.cases, options.stride)
        if options.case is not None:
            numbers = range(options.case, options.case + 1)
        return _run(numbers, inputs, top, options)
    finally:
        if not options.keep:
            shutil.rmtree(top, ignore_errors=True)


def _run(numbers: range, inputs: Path, top: Path, options: argparse.Namespace) -> int:
    summary, began = fuzz_runner.Summary(), time.monotonic()
    for number in numbers:
        if time.monotonic() - began > options.seconds:
            break
        folder = top / f"{number}" / "case"
        folder.mkdir(parents=True)
        case = fuzz_runner.prepared(number, inputs, folder)
        if options.command is None or case.command.name.startswith(options.command):
            outcome = fuzz_runner.run_case(case, folder)
            summary.add(case, outcome)
            if outcome.faults or options.case is not None:
                said = " ".join(ascii(word)[:120] for word in case.arguments)
                print(f"case {number}: {'; '.join(outcome.faults) or 'no fault'} (exit {outcome.code})")
                print(f"  dpassay {said}\n  changed: {', '.join(case.changes)}")
                shown = outcome.output if options.case is not None else outcome.output[-400:]
                print("  " + ascii(shown).replace("\\n", "\n  "), flush=True)
        if not options.keep:
            shutil.rmtree(folder.parent, ignore_errors=True)
    print("\n".join(summary.lines()), flush=True)
    return 1 if summary.failed else 0


if __name__ == "__main__":
    sys.exit(main())
