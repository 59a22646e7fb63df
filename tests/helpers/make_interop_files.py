"""Writes files of other libraries, with what the libraries answer, for `tests/accounting/interop/`.

    python tests/helpers/make_interop_files.py tests/accounting/interop/files LIBRARY...

Libraries need environments of their own, so each is run alone; what it answers is added to ``answers.json``, and all
files are committed. They were written with ``flwr[dp]==1.42.0``, ``tensorflow-privacy==0.9.0``, ``opake-accounting``
and ``opake-dpsgd==0.16.1``, ``opendp==0.16.0``, ``smartnoise-sql==1.0.10``, ``riskcal==1.5.1``, ``gdpnum==0.1.2``, and
from copies of their repositories on the path: jax_privacy 2.3.0.dev0, microsoft/DPSDA at 9078c67, google/dpsynth at
cf8075f (with ``pipeline-dp==0.3.1``). The configuration of Safe Synthesizer 0.1.16 is written by hand after its source,
since it needs a GPU.
"""

from __future__ import annotations

import contextlib
import dataclasses
import importlib.util
import json
import os
import sys
import types
import warnings
from pathlib import Path
from typing import Any


def flower(folder: Path) -> dict[str, Any]:
    """A state for each accounting model of Flower, and its ε."""
    from flwr.supercore.privacy_accounting import (
        GaussianPrivacyEvent,
        NeighboringRelation,
        PrivacyConfig,
        SamplingMethod,
    )
    from flwr.supercore.privacy_accounting.rdp_accountant import RdpAccountant

    answers = {}
    for method, relation in (
        ("POISSON", "ADD_OR_REMOVE_ONE"),
        ("WITHOUT_REPLACEMENT", "REPLACE_ONE"),
        ("NO_AMPLIFICATION", "ADD_OR_REMOVE_ONE"),
    ):
        config = PrivacyConfig(1e-5, 1000, NeighboringRelation[relation], SamplingMethod[method])
        accountant = RdpAccountant(config)
        accountant.compose(GaussianPrivacyEvent(1.5, 50, 1000), 100)
        accountant.compose(GaussianPrivacyEvent(2.0, 50, 1000), 20)
        name = f"flower-{method.lower()}.json"
        (folder / name).write_text(json.dumps(accountant.state_dict(), indent=1) + "\n")
        answers[name] = accountant.get_epsilon(1e-5)
    whole = RdpAccountant(
        PrivacyConfig(1e-5, 1000, NeighboringRelation.REPLACE_ONE, SamplingMethod.WITHOUT_REPLACEMENT)
    )
    whole.compose(GaussianPrivacyEvent(1.5, 1000, 1000), 1)
    (folder / "flower-whole.json").write_text(json.dumps(whole.state_dict(), indent=1) + "\n")
    return answers | {"flower-whole.json": whole.get_epsilon(1e-5)}


def tensorflow_privacy(folder: Path) -> dict[str, Any]:
    """Statements with and without microbatches, with a limit on the examples of a user, and by the other accountant."""
    from tensorflow_privacy.privacy.analysis import compute_dp_sgd_privacy_lib as library

    given: dict[str, dict[str, Any]] = {
        "with": {},
        "without": {"used_microbatching": False},
        "users": {"used_microbatching": False, "max_examples_per_user": 5},
        "single": {"used_microbatching": False, "max_examples_per_user": 1},
        "pld": {"max_examples_per_user": 5, "accountant_type": library.AccountantType.PLD},
    }
    for name, options in given.items():
        text = library.compute_dp_sgd_privacy_statement(60_000, 256, 15.0, 1.1, 1e-6, **options)
        (folder / f"tensorflow-privacy-{name}.txt").write_text(text)
    return {}


def tensorflow_privacy_until_2022(folder: Path) -> dict[str, Any]:
    """The line that versions up to 0.8.7 print; this one with tensorflow-privacy==0.8.0."""
    from tensorflow_privacy.privacy.analysis import compute_dp_sgd_privacy_lib as library

    with (folder / "tensorflow-privacy-line.txt").open("w") as file, contextlib.redirect_stdout(file):
        library.compute_dp_sgd_privacy(60_000, 250, 1.3, 15, 1e-5)
    return {}


def jax_privacy(folder: Path) -> dict[str, Any]:
    """Configurations of banded matrix factorisation, and the ε of their own events."""
    import numpy as np
    import optax

    optax.ArrayTree = Any  # a name that released versions lack
    from dp_accounting.pld import PLDAccountant
    from jax_privacy.execution_plan import BandMFConfig

    known: dict[str, Any] = {"iterations": 1001, "expected_participations": 10, "noise_multiplier": 1.5}
    made = {
        "sgd": BandMFConfig(strategy=np.array([1.0]), **known),
        "bands": BandMFConfig.default(num_bands=4, **known),
        "split": BandMFConfig.default(num_bands=4, num_examples=10_000, **known),
        "truncated": BandMFConfig(strategy=np.ones(2), num_examples=10_001, truncated_batch_size=120, **known),
    }
    answers = {}
    for name, config in made.items():
        fields = dataclasses.asdict(config) | {"strategy": np.asarray(config.strategy, dtype=float).tolist()}
        file = f"jax-privacy-{name}.json"
        (folder / file).write_text(json.dumps(fields, indent=1) + "\n")
        plan = config.make()
        accountant = PLDAccountant(plan.neighboring_relation).compose(plan.dp_event)
        answers[file] = {"event": repr(plan.dp_event), "epsilon": accountant.get_epsilon(1e-5)}
    return answers


def opake(folder: Path) -> dict[str, Any]:
    """A run of DP-SGD with steps on a truncated sample, noise on all records, and a mechanism by its ε and δ."""
    import opake.accounting as accounting
    from opake.api.accounting.dpsgd.amplification import poisson
    from opake.api.accounting.dpsgd.mechanisms import gaussian
    from opake.serialization import state_dict

    process = accounting.Accountant(budget=accounting.epsilon_budget(3.0, delta=1e-5))
    process = process | poisson(gaussian(1.1), 0.01) * 1000
    process = process | poisson(gaussian(1.1), 0.01, truncated_batch_size=150, dataset_size=10_000) * 10
    process = process | gaussian(5.0) | accounting.eps_delta(0.1, 1e-7)
    (folder / "opake.json").write_text(json.dumps(dict(state_dict(process)), indent=1) + "\n")
    steps = accounting.Accountant() | poisson(gaussian(1.1), 0.01) * 1000 | gaussian(5.0)
    (folder / "opake-steps.json").write_text(json.dumps(dict(state_dict(steps)), indent=1) + "\n")
    return {"opake.json": process.epsilon_at(1e-5), "opake-steps.json": steps.epsilon_at(1e-5)}


def opendp(folder: Path) -> dict[str, Any]:
    """Measurements, and their own maps at a distance of 1."""
    import opendp.prelude as dp
    from opendp.mod import serialize

    dp.enable_features("contrib", "honest-but-curious")
    rows = dp.vector_domain(dp.atom_domain(T=int)), dp.symmetric_distance()
    total = rows >> dp.t.then_clamp((-3, 10)) >> dp.t.then_sum() >> dp.m.then_laplace(7.0)
    number = rows >> dp.t.then_count() >> dp.m.then_laplace(3.0)
    noisy = rows >> dp.t.then_count() >> dp.m.then_gaussian(10.0)
    floats = dp.atom_domain(T=float, nan=False), dp.absolute_distance(T=float)
    vectors = dp.vector_domain(dp.atom_domain(T=float, nan=False)), dp.l2_distance(T=float)
    mean = dp.vector_domain(dp.atom_domain(T=float, bounds=(0.0, 1.0)), size=9), dp.symmetric_distance()
    measurements = {
        "laplace-sum": total,
        "gaussian-count": noisy,
        "composition": dp.c.make_composition([total, number, number]),
        "fixed-delta": dp.c.make_fix_delta(dp.c.make_zCDP_to_approxDP(noisy), 1e-6),
        "laplace-number": dp.m.make_laplace(*floats, scale=3.0),
        "gaussian-vector": dp.m.make_gaussian(*vectors, scale=3.0),
        "geometric": dp.m.make_geometric(dp.atom_domain(T=int), dp.absolute_distance(T=int), scale=3.0),
        "response": dp.m.make_randomized_response(categories=["a", "b", "c"], prob=0.75),
        "response-bool": dp.m.make_randomized_response_bool(prob=0.75),
        "not-known-mean": mean >> dp.t.then_mean() >> dp.m.then_laplace(1.0),
    }
    answers = {}
    for name, measurement in measurements.items():
        file = f"opendp-{name}.json"
        (folder / file).write_text(serialize(measurement) + "\n")
        distance = 1.0 if name in ("laplace-number", "gaussian-vector") else 2 if "mean" in name else 1
        answers[file] = measurement.map(distance)
    return answers


def smartnoise(folder: Path) -> dict[str, Any]:
    """The steps of two queries, and what the odometer says was spent."""
    warnings.simplefilter("ignore")
    import numpy as np
    import pandas as pd
    import snsql

    columns = {"age": {"type": "int", "lower": 0, "upper": 100}, "kind": {"type": "string"}}
    rng = np.random.default_rng(0)
    table = pd.DataFrame({"age": rng.integers(0, 100, 1000), "kind": rng.choice(["a", "b"], 1000)})
    reader = snsql.from_df(
        table,
        metadata={"": {"S": {"T": {"row_privacy": True, "rows": 1000, **columns}}}},
        privacy=snsql.Privacy(epsilon=0.5, delta=1e-5),
    )
    reader.execute("SELECT kind, COUNT(*) AS n, SUM(age) AS s FROM S.T GROUP BY kind")
    reader.execute("SELECT AVG(age) AS a FROM S.T")
    (folder / "smartnoise.json").write_text(json.dumps({"steps": reader.odometer.steps}) + "\n")
    return {"smartnoise.json": [float(item) for item in reader.odometer.spent]}


def private_evolution(folder: Path) -> dict[str, Any]:
    """Logs of its Gaussian mechanism with a target ε, and with a noise multiplier."""
    from pe.dp import Gaussian
    from pe.dp.gaussian import compute_epsilon
    from pe.logging import execution_logger, setup_logging

    answers = {}
    for name, given in (("epsilon", (10, 1.0, 1e-5, None)), ("noise", (5, None, 1e-6, 2.5))):
        path = folder / f"private-evolution-{name}.txt"
        path.unlink(missing_ok=True)
        setup_logging(log_file=str(path), log_screen=False)
        mechanism = Gaussian()
        mechanism.set_epsilon_and_delta(*given)
        execution_logger.info("PE iteration 1")
        answers[path.name] = compute_epsilon(mechanism._noise_multiplier, given[0], given[2])
    return answers


def dpsynth(folder: Path) -> dict[str, Any]:
    """Diagnostic information of the budget that AIM would divide, as text and as JSON.

    The budget is divided by the library's accountant, and written by its class; the rest of the run needs Beam.
    """
    import pipeline_dp
    from pipeline_dp.budget_accounting import PLDBudgetAccountant

    names = ("dpsynth", "dpsynth.pipeline_transformations", "dpsynth.pipeline_transformations.types")
    stubs: list[Any] = [types.ModuleType(name) for name in names]
    sys.modules.update(zip(names, stubs, strict=True))
    stubs[1].types, stubs[2].Collection = stubs[2], list
    path = Path(os.environ["DPSYNTH"]) / "dpsynth/pipeline_transformations/diagnostic_info.py"
    spec = importlib.util.spec_from_file_location("diagnostic_info", path)
    assert spec is not None
    assert spec.loader is not None
    library = importlib.util.module_from_spec(spec)
    sys.modules["diagnostic_info"] = library
    spec.loader.exec_module(library)

    kinds = pipeline_dp.budget_accounting.MechanismType
    accountant = PLDBudgetAccountant(2.0, 1e-6)
    accountant.request_budget(kinds.GAUSSIAN, count=3, name="One-way marginals")
    accountant.request_budget(kinds.LAPLACE, count=4, name="AIM Exponential Mechanism")
    accountant.request_budget(kinds.GAUSSIAN, count=4, name="AIM Gaussian Mechanism")
    accountant.request_budget(kinds.GENERIC, name="Values of an attribute")
    accountant.compute_budgets()
    result = library.DiagnosticInformation(epsilon=2.0, delta=1e-6, mechanism="aim", attribute_names=["a", "b"])
    for item in accountant.mechanism_specs:
        operation = library.DPOperation(name=item.name, mechanism_type=str(item.mechanism_type), count=item.count)
        if item._eps is not None:
            operation.epsilon, operation.delta = item.eps, item.delta
        if item.standard_deviation_is_set:
            operation.sigma = item.noise_standard_deviation
        result.dp_operations.append(operation)
    (folder / "dpsynth.txt").write_text(str(result))
    (folder / "dpsynth.json").write_text(json.dumps(dataclasses.asdict(result), indent=1) + "\n")
    return {}


def safe_synthesizer(folder: Path) -> dict[str, Any]:
    """By hand: the parts of a configuration that say anything about privacy."""
    privacy = {"dp_enabled": True, "epsilon": 8.0, "delta": "auto", "per_sample_max_grad_norm": 1.0}
    config = {"data": {"holdout": 0.05}, "training": {"batch_size": 1}, "privacy": privacy}
    (folder / "safe-synthesizer-config.json").write_text(json.dumps(config, indent=1) + "\n")
    report = {"components": [], "config": config | {"privacy": privacy | {"delta": 1e-5}}}
    (folder / "safe-synthesizer-report.json").write_text(json.dumps(report, indent=1) + "\n")
    return {}


def loss_distributions(folder: Path) -> dict[str, Any]:
    """What riskcal and gdpnum make of a privacy loss distribution of dp_accounting, whose arrays are written out."""
    import gdpnum
    import riskcal
    from dp_accounting.pld import privacy_loss_distribution

    pld = privacy_loss_distribution.from_gaussian_mechanism(
        2.0, sampling_prob=0.1, value_discretization_interval=2e-2, use_connect_dots=True
    ).self_compose(20)
    plrvs = riskcal.analysis.plrvs_from_pld(pld)
    arrays = {
        "y0": int(plrvs.y0),
        "pmf_Y": plrvs.pmf_Y.tolist(),
        "infinity_mass_Y": float(plrvs.infinity_mass_Y),
        "x0": int(plrvs.x0),
        "pmf_X": plrvs.pmf_X.tolist(),
        "minus_infinity_mass_X": float(plrvs.minus_infinity_mass_X),
        "is_symmetric": bool(plrvs.is_symmetric),
        "discretization": 2e-2,
    }
    (folder / "riskcal-plrvs.json").write_text(json.dumps(arrays) + "\n")
    alphas = [0.01, 0.1, 0.3, 0.6]
    return {
        "riskcal-plrvs.json": {
            "alphas": alphas,
            "riskcal": [float(riskcal.analysis.get_beta_from_plrvs(plrvs, alpha)) for alpha in alphas],
            "gdpnum": [float(gdpnum.PLDConverter(pld).get_beta(alpha)) for alpha in alphas],
            "epsilon": float(pld.get_epsilon_for_delta(1e-5)),
        }
    }


MAKERS = (
    *(flower, tensorflow_privacy, jax_privacy, opake, opendp, smartnoise, private_evolution, dpsynth),
    *(safe_synthesizer, loss_distributions, tensorflow_privacy_until_2022),
)

if __name__ == "__main__":
    folder = Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    kept = folder / "answers.json"
    answers = json.loads(kept.read_text()) if kept.exists() else {}
    for maker in MAKERS:
        if maker.__name__ in sys.argv[2:]:
            answers |= maker(folder)
    kept.write_text(json.dumps(answers, indent=1) + "\n")
