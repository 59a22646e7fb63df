"""`dpassay calibrate`: a subcommand for each mechanism, which finds the parameter that is not given."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from dpassay.base import defaults
from dpassay.base.terminal import say
from dpassay.cli.options import Adjacency, Json, Occurrences, Quiet, SamplingProbability, Weights, show

if TYPE_CHECKING:
    from dpassay.accounting.calibration.calibration import Calibration

app = typer.Typer(
    no_args_is_help=True,
    help="Finds the noise, rate, number of steps or clip whose certified bound meets a target.",
    epilog="Example: dpassay calibrate dp-sgd --target-epsilon 1 --delta 1e-5 --sampling-probability .01 --steps 1000",
)

TargetEpsilon = Annotated[float | None, typer.Option(help="ε of (ε, δ)-DP; with --delta.")]
TargetMu = Annotated[float | None, typer.Option(help="μ of Gaussian DP; with --delta, for δ(ε) above it only.")]
TargetBeta = Annotated[float | None, typer.Option(help="Smallest type II error of any test; with --alpha.")]
TargetR = Annotated[float | None, typer.Option(help="Largest probability of guessing a secret afterwards; with --p.")]
Delta = Annotated[float | None, typer.Option(help="δ in (0, 1).")]
Alpha = Annotated[float | None, typer.Option(help="Type I error, in (0, 1).")]
P = Annotated[float | None, typer.Option("--p", help="Largest probability of guessing it before, in (0, 1).")]
Method = Annotated[str | None, typer.Option(help="Accountant that computes the bound. Default: the certified lattice.")]
Tolerance = Annotated[float, typer.Option(help="Relative tolerance of the parameter that is found.")]


def _show(found: Calibration, json_: bool, quiet: bool) -> None:
    from dpassay.jobs.calibrate import in_words

    show(found.to_json(), lambda: say("\n".join(in_words(found))), json_, quiet)


@app.command(
    "dp-sgd",
    epilog="Example: dpassay calibrate dp-sgd --target-epsilon 1 --delta 1e-5 --sampling-probability .01 --steps 1000",
)
def dp_sgd(
    target_epsilon: TargetEpsilon = None,
    target_mu: TargetMu = None,
    target_beta: TargetBeta = None,
    target_r: TargetR = None,
    delta: Delta = None,
    alpha: Alpha = None,
    p: P = None,
    find: Annotated[str, typer.Option(help="What to find: noise, rate or steps.")] = "noise",
    noise_multiplier: Annotated[float | None, typer.Option(help="σ over the clipping norm, above 0.")] = None,
    sampling_probability: Annotated[
        float | None, typer.Option(help="Probability that a record is in a batch, in (0, 1].")
    ] = None,
    steps: Annotated[int | None, typer.Option(help="Number of steps, at least 1.")] = None,
    adjacency: Adjacency = "add_remove",
    method: Method = None,
    tolerance: Tolerance = defaults.TOLERANCE,
    json_: Json = False,
    quiet: Quiet = False,
) -> None:
    """Finds the noise multiplier, sampling probability or number of steps of DP-SGD with Poisson-sampled batches."""
    from dpassay.jobs import calibrate as job

    goal = job.Goal(adjacency, target_epsilon, delta, target_mu, target_beta, alpha, target_r, p, method, tolerance)
    _show(job.dp_sgd(goal, find, noise_multiplier, sampling_probability, steps), json_, quiet)


@app.command(epilog="Example: dpassay calibrate gaussian --target-epsilon 1 --delta 1e-5 --count 10")
def gaussian(
    target_epsilon: TargetEpsilon = None,
    target_mu: TargetMu = None,
    target_beta: TargetBeta = None,
    target_r: TargetR = None,
    delta: Delta = None,
    alpha: Alpha = None,
    p: P = None,
    find: Annotated[str, typer.Option(help="What to find: noise or count.")] = "noise",
    noise_multiplier: Annotated[float | None, typer.Option(help="σ over the sensitivity to one record.")] = None,
    count: Annotated[int | None, typer.Option(help="Number of releases, at least 1.")] = None,
    adjacency: Adjacency = "add_remove",
    method: Method = None,
    tolerance: Tolerance = defaults.TOLERANCE,
    json_: Json = False,
    quiet: Quiet = False,
) -> None:
    """Finds the noise multiplier or the number of Gaussian releases of the whole data set."""
    from dpassay.jobs import calibrate as job

    goal = job.Goal(adjacency, target_epsilon, delta, target_mu, target_beta, alpha, target_r, p, method, tolerance)
    _show(job.gaussian(goal, find, noise_multiplier, count), json_, quiet)


@app.command(
    epilog="Example: dpassay calibrate selection --target-epsilon 3 --delta 1e-5 --temperature 1.5 --batch-size 64 "
    "--count 128"
)
def selection(
    temperature: Annotated[float, typer.Option(help="The temperature of the softmax, above 0.")],
    batch_size: Annotated[int, typer.Option(help="The public denominator of the mean of logits.")],
    target_epsilon: TargetEpsilon = None,
    target_mu: TargetMu = None,
    target_beta: TargetBeta = None,
    target_r: TargetR = None,
    delta: Delta = None,
    alpha: Alpha = None,
    p: P = None,
    find: Annotated[str, typer.Option(help="What to find: clip or steps.")] = "clip",
    clip: Annotated[float | None, typer.Option(help="Logits are clipped to ± this, above 0.")] = None,
    count: Annotated[int | None, typer.Option(help="Number of selections, at least 1.")] = None,
    adjacency: Adjacency = "add_remove",
    method: Method = None,
    tolerance: Tolerance = defaults.TOLERANCE,
    json_: Json = False,
    quiet: Quiet = False,
) -> None:
    """Finds the clip or the number of tokens drawn from a mean of clipped logits."""
    from dpassay.jobs import calibrate as job

    goal = job.Goal(adjacency, target_epsilon, delta, target_mu, target_beta, alpha, target_r, p, method, tolerance)
    _show(job.selection(goal, find, clip, temperature, batch_size, count), json_, quiet)


@app.command(
    epilog="Example: dpassay calibrate secret --target-r 2e-4 --p 1e-4 --occurrences 80 --sampling-probability .01 "
    "--rounds 1"
)
def secret(
    target_r: Annotated[float, typer.Option(help="Largest probability of guessing the secret afterwards.")],
    p: Annotated[float, typer.Option("--p", help="Largest probability of guessing it before, in (0, 1).")],
    find: Annotated[str, typer.Option(help="What to find: noise or rounds.")] = "noise",
    occurrences: Occurrences = None,
    sampling_probability: SamplingProbability = None,
    weights: Weights = None,
    sigma: Annotated[
        float | None, typer.Option(help="Standard deviation of the noise, where an occurrence contributes at most 1.")
    ] = None,
    rounds: Annotated[int | None, typer.Option(help="Number of releases, each with fresh noise and sampling.")] = None,
    tolerance: Tolerance = defaults.TOLERANCE,
    json_: Json = False,
    quiet: Quiet = False,
) -> None:
    """Finds the noise or the number of rounds for secret protection: a guess is right with p before, with r after."""
    from dpassay.jobs import calibrate as job
    from dpassay.jobs.compare import secret_of

    release = secret_of(1.0 if sigma is None else sigma, occurrences, sampling_probability, weights)
    goal = job.Goal("secret", r=target_r, p=p, tolerance=tolerance)
    _show(job.secret(goal, find, release, sigma, rounds), json_, quiet)
