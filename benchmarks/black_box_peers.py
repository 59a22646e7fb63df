"""Black-box auditors of other people on the seeded bugs, asked the way their documentation does.

    python black_box_peers.py AUDITOR --cases NAME … --runs N … --repetitions R

Runs with nothing of ours installed; `black_box_power.py` calls it. Prints a JSON object on a line for each method,
case and number of runs: how often ε = 1 was refuted at β = 5%, how often the generator ran in an audit, as counted, and
the seconds. An auditor may run it RUNS times in all, on both neighbours together, for everything that it does. A line
with "missing" says why there is nothing else.

Neighbours are ours, those of the case, or `own`: those that the auditor looks for by itself, with the same runs. Every
run takes a seed from the operating system, because some auditors copy a mechanism to other processes.
"""

from __future__ import annotations

import argparse
import contextlib
import functools
import importlib.metadata
import json
import logging
import math
import os
import secrets
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import seeded_bugs
from numpy.typing import NDArray
from seeded_bugs import CASES, CONTROL, EPSILON, NEW, OLD, USUAL, Case, Rows

BETA = 0.05
COUNTED = "SEEDED_BUGS_COUNTED_RUNS"
"""The variable that names a file of one byte for each run."""

Audit = Callable[[Case, int], bool]
"""From a case and the number of runs to whether ε = 1 is refuted."""


@dataclass(frozen=True)
class Method:
    """A way to ask an auditor.

    Attributes:
        name: for the table.
        neighbours: ``ours`` or ``own``.
        takes: ``counts`` of the output, or a ``score`` that was chosen knowing the bug.
        audit: one audit.
        part: of the repetitions that are made. A method of 0.1 or less, which takes many seconds, is not asked about
            a number of runs with which it never refuted the control.
    """

    name: str
    neighbours: str
    takes: str
    audit: Audit
    part: float = 1.0


def count_tables(case: Case, rows: Rows, runs: int) -> NDArray[np.float64]:
    """What the tables of so many runs count, shape (runs, 10)."""
    with open(os.environ[COUNTED], "a") as file:  # of other processes, too
        file.write("." * runs)
    outputs = [seeded_bugs.counts(case.generate(rows, secrets.randbits(63))) for _ in range(runs)]
    return np.array(outputs, dtype=np.float64)


def score_tables(case: Case, rows: Rows, runs: int) -> NDArray[np.float64]:
    """Scores of the tables of so many runs, shape (runs,)."""
    return np.array([case.score(counts) for counts in count_tables(case, rows, runs).tolist()], dtype=np.float64)


KINDS: Rows = [NEW, USUAL[0], USUAL[1], OLD, {"city": "north", "age": 10.0}]
NUMBERS = {"add_remove": len(KINDS), "replace_one": 1}
"""How many numbers the search of StatDP, which DP-Sniper has too, varies: the first one, from 1 to 0 or to 2."""


def table_of(numbers: Any, adjacency: str) -> Rows:
    """The table that numbers of that search stand for: how many records of each kind, or which record it has."""
    whole = [int(number) for number in numbers]
    if adjacency == "add_remove":
        return [kind for kind, number in zip(KINDS, whole, strict=True) for _ in range(number)]
    return [(USUAL[0], OLD, NEW)[number] for number in whole]


@contextlib.contextmanager
def statdp() -> Iterator[list[Method]]:
    """`detect_counterexample`; five sixths of the runs are for the test, as by default.

    It tries all products of ten events of each number of the output, so it gets one number. Its events are "less than",
    so it gets minus the score. Of outputs with few values it counts an event several times, and stops with an error; so
    ties are broken at random.
    """
    from statdp import ONE_DIFFER, detect_counterexample

    def audit(case: Case, runs: int, *, own: bool) -> bool:
        pairs = 2 if own else 1
        select = max(1, runs // (12 * pairs))
        test = (runs - pairs * (2 * select + 1) - 1) // 2  # every use of an algorithm begins with one more run
        neighbours = {"num_input": NUMBERS[case.adjacency], "sensitivity": ONE_DIFFER}
        ((_, p, *_),) = detect_counterexample(
            statdp_algorithm,
            EPSILON,
            {"epsilon": EPSILON, "name": case.name},
            **(neighbours if own else {"databases": (case.data, case.neighbor)}),
            event_iterations=select,
            detect_iterations=test,
            cores=1,
            quiet=True,
            loglevel=logging.ERROR,
        )
        return bool(p < BETA)

    yield [
        Method("detect_counterexample", which, "score", functools.partial(audit, own=which == "own"))
        for which in ("ours", "own")
    ]


def statdp_algorithm(prng: np.random.Generator, queries: Any, epsilon: float, name: str) -> float:
    """A generator as StatDP wants it; it reads the names of the arguments."""
    case = CASES[name]
    rows = queries if queries and isinstance(queries[0], dict) else table_of(queries, case.adjacency)
    return float(prng.uniform(0.0, 0.5) - score_tables(case, rows, 1)[0])


class Sniped:
    """A generator as DP-Sniper wants it, which copies it to another process."""

    def __init__(self, name: str) -> None:
        self.name = name

    def m(self, a: NDArray[Any], n_samples: int = 1) -> NDArray[np.float64]:
        """Counts, shape (n_samples, 10). One number less than zero is which of the two neighbours of the case it is."""
        case = CASES[self.name]
        if a[0] < 0:
            return count_tables(case, case.neighbor if a[0] == -2 else case.data, n_samples)
        return count_tables(case, table_of(a, case.adjacency), n_samples)


class OurPair:
    """The neighbours of the case, and swapped, as DP-Sniper's own generator of pairs gives its own."""

    def get_input_pairs(self) -> Iterator[tuple[NDArray[Any], NDArray[Any]]]:
        data, neighbour = np.array([-1]), np.array([-2])
        yield neighbour, data
        yield data, neighbour


@contextlib.contextmanager
def dp_sniper() -> Iterator[list[Method]]:
    """`DDSearch` and `compute_eps_high_precision` with the classifier of its example.

    Half of the runs are for the final test, the others for training, threshold and check of every pair. By its default
    it looks for an event of probability 0.01; with 0.1, so few runs can tell more.
    """
    from dpsniper.attack.dpsniper import DPSniper
    from dpsniper.classifiers.classifier_factory import LogisticRegressionFactory
    from dpsniper.classifiers.torch_optimizer_factory import SGDOptimizerFactory
    from dpsniper.input.input_domain import InputBaseType, InputDomain
    from dpsniper.input.pattern_generator import PatternGenerator
    from dpsniper.search.ddconfig import DDConfig
    from dpsniper.search.ddsearch import DDSearch
    from dpsniper.utils.initialization import initialize_dpsniper

    def audit(case: Case, runs: int, *, own: bool, mass: float) -> bool:
        pairs: Any = OurPair()
        if own:
            domain = InputDomain(NUMBERS[case.adjacency], InputBaseType.INT, [0, 10])
            pairs = PatternGenerator(domain, False)
        number = len(list(pairs.get_input_pairs()))
        part = max(1, runs // (10 * number))  # of a pair: two parts train, one sets the threshold, two check
        config = DDConfig(
            c=mass,
            n_train=part,
            n=part,
            n_check=part,
            n_final=(runs - 5 * part * number) // 2,
            n_processes=1,
            confidence=1 - BETA,
        )
        mechanism = Sniped(case.name)
        factory = LogisticRegressionFactory(in_dimensions=10, optimizer_factory=SGDOptimizerFactory())
        witness = DDSearch(mechanism, DPSniper(mechanism, factory, config), pairs, config).run()
        witness.compute_eps_high_precision(mechanism, config)
        return bool(witness.lower_bound > EPSILON)

    folder = tempfile.mkdtemp()
    try:
        with initialize_dpsniper(DDConfig(n_processes=1), out_dir=folder, torch_threads=1):
            yield [
                Method(
                    f"DD-Search, c = {mass}",
                    which,
                    "counts",
                    functools.partial(audit, own=which == "own", mass=mass),
                    0.25,
                )
                for mass in (0.01, 0.1)
                for which in ("ours", "own")
            ]
    finally:
        shutil.rmtree(folder)


@contextlib.contextmanager
def dp_auditorium() -> Iterator[list[Method]]:
    """`PrivacyTestRunner` with each tester for (ε, δ), on our neighbours, with the settings of its example.

    Its own search suggests lists of numbers, not tables. The runner tests both directions at β each.
    """
    import tensorflow as tf
    from dp_auditorium import privacy_test_runner
    from dp_auditorium.configs import privacy_property, property_tester_config
    from dp_auditorium.configs import privacy_test_runner_config as runner_config
    from dp_auditorium.generators import constant_dataset_generator
    from dp_auditorium.testers import histogram_tester, hockey_stick_tester, mmd_tester

    tf.config.threading.set_intra_op_parallelism_threads(1)
    tf.config.threading.set_inter_op_parallelism_threads(1)
    claim = privacy_property.ApproximateDp(epsilon=EPSILON, delta=0.0)
    kinds, post = runner_config.PropertyTester, runner_config.PostProcessing

    def audit(case: Case, runs: int, *, tester: Callable[[], Any], kind: Any, scores: bool = False) -> bool:
        config = runner_config.PrivacyTestRunnerConfig(
            property_tester=kind,
            max_num_trials=1,
            failure_probability=BETA,
            num_samples=runs // 2,
            post_processing=post.NONE if scores else post.TANH,
        )
        pair = constant_dataset_generator.ConstantDatasetGenerator((case.data, case.neighbor))
        runner = privacy_test_runner.PrivacyTestRunner(config, pair, tester())
        draw = score_tables if scores else count_tables

        def mechanism(rows: Rows, samples: int) -> NDArray[Any]:
            drawn = draw(case, rows, samples)
            return drawn.astype(np.int64) if scores else drawn

        with contextlib.redirect_stdout(open(os.devnull, "w")):  # a bar of progress
            return runner.test_privacy(mechanism, case.name).found_privacy_violation is not None

    def hockey_stick(epochs: int) -> Any:
        training = hockey_stick_tester.make_default_hs_training_config()
        training.training_epochs = epochs
        config = property_tester_config.HockeyStickPropertyTesterConfig(training_config=training, approximate_dp=claim)
        return hockey_stick_tester.HockeyStickPropertyTester(config, hockey_stick_tester.make_default_hs_base_model())

    def histogram() -> Any:
        config = property_tester_config.HistogramPropertyTesterConfig(
            test_discrete_mechanism=True, histogram_size=5, min_value=0, max_value=4, approximate_dp=claim
        )
        return histogram_tester.HistogramTester(config)

    def mmd() -> Any:
        kernel = property_tester_config.Kernel.KERNEL_RBF
        config = property_tester_config.MMDPropertyTesterConfig(kernel=kernel, bandwidth=1.0, approximate_dp=claim)
        return mmd_tester.MMDPropertyTester(config)

    neural, plain = functools.partial(audit, kind=kinds.HOCKEY_STICK_TESTER), functools.partial(audit, scores=True)
    yield [
        Method("histogram", "ours", "score", functools.partial(plain, tester=histogram, kind=kinds.HISTOGRAM_TESTER)),
        Method("MMD", "ours", "counts", functools.partial(audit, tester=mmd, kind=kinds.MMD_TESTER)),
        *(
            Method(f"hockey-stick, {epochs} epochs", "ours", "counts", functools.partial(neural, tester=tester), 0.1)
            for epochs in (2, 50)
            for tester in (functools.partial(hockey_stick, epochs),)
        ),
    ]


@contextlib.contextmanager
def privacyguard() -> Iterator[list[Method]]:
    """What `AnalysisNode` reports as eps_cp, from scores with and without the record."""
    import torch
    from privacy_guard.analysis.mia.mia_results import MIAResults

    def audit(case: Case, runs: int) -> bool:
        inside, outside = (torch.from_numpy(score_tables(case, rows, runs // 2)) for rows in (case.neighbor, case.data))
        return bool(MIAResults(inside, outside).compute_acc_auc_ci_epsilon(0.0)[2] > EPSILON)

    torch.set_num_threads(1)
    yield [Method("eps_cp", "ours", "score", audit)]


AUDITORS: dict[str, tuple[str, Callable[[], contextlib.AbstractContextManager[list[Method]]]]] = {
    "statdp": ("statdp", statdp),
    "dp_sniper": ("dpsniper", dp_sniper),
    "dp_auditorium": ("dp-auditorium", dp_auditorium),
    "privacyguard": ("privacyguard-platform", privacyguard),
}
"""By name: the package, and a context in which its methods may be asked."""


def ask(method: Method, case: Case, runs: int, repetitions: int) -> dict[str, Any]:
    """One row: how often a method refutes a case."""
    repetitions = math.ceil(repetitions * method.part)
    before, start = os.path.getsize(os.environ[COUNTED]), time.perf_counter()
    refuted = sum(method.audit(case, runs) for _ in range(repetitions))
    seconds = (time.perf_counter() - start) / max(repetitions, 1)
    ran = (os.path.getsize(os.environ[COUNTED]) - before) / max(repetitions, 1)
    what = {"method": method.name, "neighbours": method.neighbours, "takes": method.takes, "case": case.name}
    return {**what, "runs": runs, "ran": ran, "refuted": refuted, "repetitions": repetitions, "seconds": seconds}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("auditor", choices=AUDITORS)
    parser.add_argument("--cases", nargs="+", choices=CASES, default=list(CASES))
    parser.add_argument("--runs", nargs="+", type=int, default=[50, 200, 1000])
    parser.add_argument("--repetitions", type=int, default=20)
    options = parser.parse_args()
    package, methods_of = AUDITORS[options.auditor]
    with tempfile.NamedTemporaryFile() as counted, contextlib.ExitStack() as stack:
        os.environ[COUNTED] = counted.name
        try:
            version, methods = importlib.metadata.version(package), stack.enter_context(methods_of())
        except (ImportError, importlib.metadata.PackageNotFoundError) as error:
            print(json.dumps({"missing": f"{package} is not installed or does not load: {str(error).splitlines()[0]}"}))
            return
        cases = sorted((CASES[name] for name in options.cases), key=lambda case: case is not CONTROL)
        for method in methods:
            for runs in options.runs:
                able = True
                for case in cases:
                    row = ask(method, case, runs, options.repetitions if able else 0)
                    able = able and not (case is CONTROL and method.part <= 0.1 and not row["refuted"])
                    print(json.dumps({"auditor": options.auditor, "version": version, **row}), flush=True)


if __name__ == "__main__":
    main()
