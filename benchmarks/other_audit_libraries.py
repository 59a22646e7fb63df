"""Audits of other libraries, asked the way their documentation does. Runs with nothing of ours installed.

    python other_audit_libraries.py LIBRARY DATA.npz

Prints one JSON object: the library's version and, for each game and method, one ε a repetition; or why it is missing.
The data are arrays `GAME scores` and `GAME member`, shape (repetitions, runs or candidates).
"""

from __future__ import annotations

import importlib.metadata
import json
import sys
from collections.abc import Callable
from typing import Any

import numpy as np

BETA, DELTA = 0.05, 1e-5

Audit = Callable[[Any, Any], float]
"""From the scores with and without the unit to an ε."""


def remembered(audit: Audit) -> Audit:
    """An audit that sees counts at the threshold ½ only, asked once for each."""
    known: dict[tuple[int, ...], float] = {}

    def epsilon(inside: Any, outside: Any) -> float:
        counts = (inside.size, int((inside >= 0.5).sum()), outside.size, int((outside >= 0.5).sum()))
        if counts not in known:
            known[counts] = audit(inside, outside)
        return known[counts]

    return epsilon


def jax_privacy() -> dict[str, Audit]:
    """`CanaryScoreAuditor`; its threshold is the best of all, by Bonferroni, unless another strategy is named."""
    from jax_privacy import auditing

    def audit(name: str, **settings: Any) -> Audit:
        return lambda inside, outside: getattr(auditing.CanaryScoreAuditor(inside, outside), name)(BETA, **settings)

    both: dict[str, Any] = {"one_sided": False}
    return {
        "clopper_pearson, fixed": audit(
            "epsilon_clopper_pearson", **both, threshold_strategy=auditing.Explicit(threshold=0.5)
        ),
        "clopper_pearson, default": audit("epsilon_clopper_pearson", **both),
        "clopper_pearson, split": audit("epsilon_clopper_pearson", **both, threshold_strategy=auditing.Split(seed=0)),
        "from_gdp": audit("epsilon_from_gdp", delta=DELTA),
        "one_run, default": audit("epsilon_one_run", delta=DELTA),
        "one_run, fixed": audit("epsilon_one_run", delta=DELTA, threshold_strategy=auditing.Explicit(threshold=0.5)),
        "one_run_fdp, fixed": remembered(
            audit("epsilon_one_run_fdp", delta=DELTA, threshold_strategy=auditing.Explicit(threshold=0.5))
        ),
    }


def privacyguard() -> dict[str, Audit]:
    """What `AnalysisNode` reports as eps_cp, and `FDPAnalysisNode` with every candidate guessed."""
    import torch
    from privacy_guard.analysis.mia.fdp_analysis_node import FDPAnalysisNode
    from privacy_guard.analysis.mia.mia_results import MIAResults

    def clopper_pearson(inside: Any, outside: Any) -> float:
        results = MIAResults(torch.from_numpy(inside), torch.from_numpy(outside))
        return float(results.compute_acc_auc_ci_epsilon(0.0)[2])

    def f_dp(inside: Any, outside: Any) -> float:
        m, right = inside.size + outside.size, int((inside >= 0.5).sum() + (outside < 0.5).sum())
        if (m, right) not in known:
            node = FDPAnalysisNode(m=m, c=right, c_cap=m, delta=DELTA, threshold=BETA)
            known[m, right] = float(node.run_analysis().eps)
        return known[m, right]

    known: dict[tuple[int, int], float] = {}
    return {"eps_cp": clopper_pearson, "fdp": f_dp}


def privacy_estimates() -> dict[str, Audit]:
    """`compute_eps_lo` at the threshold ½."""
    from privacy_estimates import AttackResults, compute_eps_lo

    def audit(method: str) -> Audit:
        def epsilon(inside: Any, outside: Any) -> float:
            tp, fp = int((inside >= 0.5).sum()), int((outside >= 0.5).sum())
            counts = AttackResults(FN=inside.size - tp, FP=fp, TN=outside.size - fp, TP=tp)
            return float(compute_eps_lo(count=counts, delta=0.0, alpha=BETA, method=method))

        return remembered(epsilon)

    return {method: audit(method) for method in ("beta", "jeffreys", "joint-beta")}


def tensorflow_privacy() -> dict[str, Audit]:
    """`EpsilonLowerBound`: the largest of what it prints, over all thresholds (its default) or at ½."""
    sys.skip_tf_privacy_import = True  # type: ignore[attr-defined]  # the library's own switch: no TensorFlow is needed
    from tensorflow_privacy.privacy.privacy_tests.epsilon_lower_bound import BoundMethod, EpsilonLowerBound

    def audit(method: str, thresholds: Any) -> Audit:
        def epsilon(inside: Any, outside: Any) -> float:
            bound = EpsilonLowerBound(inside, outside, BETA, thresholds=thresholds)
            result = bound.compute_epsilon_lower_bound(BoundMethod(method), k=1)
            return float(result[0]) if result.size else 0.0

        return epsilon

    half = np.array([0.5])
    return {
        f"{method}, {how}": audit(method, thresholds)
        for method in ("clopper-pearson", "katz-log")
        for how, thresholds in (("fixed", half), ("default", None))
    }


LIBRARIES: dict[str, tuple[str, Callable[[], dict[str, Audit]]]] = {
    "jax_privacy": ("jax-privacy", jax_privacy),
    "privacyguard": ("privacyguard-platform", privacyguard),
    "privacy_estimates": ("privacy-estimates", privacy_estimates),
    "tensorflow_privacy": ("tensorflow-privacy", tensorflow_privacy),
}
"""By name: the package in the registry, and its audits."""

ONE_RUN = ("one_run", "fdp")
"""Methods of these beginnings play the game of one run; the others that of many."""

ASKED = {
    ("joint-beta", "response"): 1,
    ("joint-beta", "laplace"): 0,
    ("one_run_fdp, fixed", "laplace"): 0,
    ("eps_cp", "laplace"): 20,
    ("jeffreys", "laplace"): 0,
}
"""Of how many repetitions slow methods are asked; of all, if it is not said."""


def asked(method: str, game: str) -> bool:
    """Whether a method plays a game."""
    return game.startswith("one_run") == method.startswith(ONE_RUN) and ASKED.get((method, game.split("-")[1])) != 0


def answers(methods: dict[str, Audit], data: Any) -> dict[str, dict[str, list[float]]]:
    """Every method on every game that it plays, by method and game."""
    games = sorted({key.split()[0] for key in data})
    return {
        method: {
            game: [
                float(audit(row[inside], row[~inside]))
                for row, inside in zip(
                    *(
                        data[f"{game} {what}"][: ASKED.get((method, game.split("-")[1]))]
                        for what in ("scores", "member")
                    ),
                    strict=True,
                )
            ]
            for game in games
            if asked(method, game)
        }
        for method, audit in methods.items()
    }


def run(name: str, path: str) -> dict[str, Any]:
    """Every method of one library on every repetition of its games."""
    package, audits = LIBRARIES[name]
    try:
        version, methods = importlib.metadata.version(package), audits()
    except (ImportError, importlib.metadata.PackageNotFoundError) as error:
        return {"missing": f"{package} is not installed or does not load: {str(error).splitlines()[0]}"}
    with np.load(path, allow_pickle=False) as data:
        return {"version": version, "found": answers(methods, dict(data))}


if __name__ == "__main__":
    print(json.dumps(run(*sys.argv[1:])))
