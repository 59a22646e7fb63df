"""Builtin private corpora: 5-digit keys, short notes of the RAND Health Insurance Experiment, and both together.

The keys are synthetic and serve the audits: each is a secret that is recognised with certainty in an output. The notes
are the rows of `statsmodels.datasets.randhie`, about real people in a public study, one row per note, in one wording.
The embedded language model knows that wording with random values; it was not trained on any row.
"""

import re

import numpy as np

from dpassay.base.arrays import Floats

LABELS: tuple[str, ...] = ("excellent", "good", "fair", "poor")
"""Public set of the notes' labels: self-rated health."""

KEY_PREFIX = "My 5-digit key is "

PLANTED_SECRET = r"\b\d{5}\b"
"""Regular expression of the keys planted by `notes_with_secrets`; no number in a note has five digits."""

PLANTED_OCCURRENCES = 10
"""Number of notes that contain each planted key."""

_NOTE = (
    "Patient with {coinsurance}% coinsurance and {deductible} individual deductible, incentive payment ${incentive}. "
    "Chronic disease index {disease}, {limitation} physical limitation. Doctor visits in the year: {visits}."
)
_PATTERNS = {
    "coinsurance": r"(?:0|[1-9]\d?|100)",
    "deductible": r"(?:an|no)",
    "incentive": r"(?:0|[1-9]\d{0,3})",
    "disease": r"(?:0|[1-9]\d?)\.\d",
    "limitation": r"(?:a|no)",
    "visits": r"(?:0|[1-9]\d?)",
}
_WELL_FORMED = re.compile(
    "".join(
        _PATTERNS[part[1:-1]] if part.startswith("{") else re.escape(part) for part in re.split(r"(\{\w+\})", _NOTE)
    )
)


def keys(n: int, seed: int) -> list[str]:
    """Distinct 5-digit keys, each as a record such as ``My 5-digit key is 04821``, drawn uniformly by a public seed:
    the keys are not secrets.

    Raises:
        ValueError: if n is not from 0 to 100000.
    """
    if not 0 <= n <= 100_000:
        raise ValueError(f"n must be from 0 to 100000, the number of distinct 5-digit keys, not {n}")
    drawn = np.random.default_rng(seed).choice(100_000, size=n, replace=False)
    return [f"{KEY_PREFIX}{key:05d}" for key in drawn]


def render_note(
    *, coinsurance: int, deductible: bool, incentive: int, disease: float, limitation: bool, visits: int
) -> str:
    """One note in the corpus's single wording.

    Args:
        coinsurance: The patient's share of the bill, percent, 0 to 100.
        deductible: Whether the plan has an individual deductible.
        incentive: Yearly participation payment, whole US dollars.
        disease: Index of chronic diseases, shown with one decimal.
        limitation: Whether the patient has a physical limitation.
        visits: Doctor visits in the year.

    Returns:
        The text, without a final newline.
    """
    return _NOTE.format(
        coinsurance=coinsurance,
        deductible="an" if deductible else "no",
        incentive=incentive,
        disease=f"{disease:.1f}",
        limitation="a" if limitation else "no",
        visits=visits,
    )


def well_formed_note(text: str) -> bool:
    """Whether a text is a whole note in the corpus's wording with numbers in range; their values are not checked."""
    return _WELL_FORMED.fullmatch(text) is not None


def notes(n: int, seed: int) -> list[tuple[str, str]]:
    """Notes of the RAND Health Insurance Experiment with the patient's self-rated health as label.

    Rows are drawn without replacement from the 20190 person-years. The same text can occur twice, because two
    people can have equal values: these are different records. The label is not part of the text.

    Args:
        n: Number of notes, from 0 to 20190.
        seed: Seed of the draw.

    Returns:
        n pairs (text, label), label one of `LABELS`.

    Raises:
        ValueError: If n is out of range.

    Source: `statsmodels.datasets.randhie`. The data have ln(coinsurance + 1) and ln(max(1, payment)), which are
    converted back to percent and dollars here; a physical limitation is stated if its indicator, which is imputed
    for some, is at least one half.
    """
    columns = randhie()
    rows = columns["mdvis"].shape[0]
    if not 0 <= n <= rows:
        raise ValueError(f"n must be from 0 to {rows}, the number of rows in the data, not {n}")
    picked = np.random.default_rng(seed).choice(rows, size=n, replace=False)
    coinsurance = np.rint(np.exp(columns["lncoins"]) - 1).astype(int)
    payment = np.where(columns["lpi"] > 0, np.rint(np.exp(columns["lpi"])), 0).astype(int)
    health = (columns["hlthg"] + 2 * columns["hlthf"] + 3 * columns["hlthp"]).astype(int)
    return [
        (
            render_note(
                coinsurance=int(coinsurance[row]),
                deductible=bool(columns["idp"][row]),
                incentive=int(payment[row]),
                disease=float(columns["disea"][row]),
                limitation=bool(columns["physlm"][row] >= 0.5),
                visits=int(columns["mdvis"][row]),
            ),
            LABELS[health[row]],
        )
        for row in picked
    ]


def notes_with_secrets(n: int, seed: int) -> list[tuple[str, str]]:
    """Notes of `notes`, about a fifth of which contain planted keys, as ``… My 5-digit key is 04821.`` at the end; n
    pairs (text, label), label one of `LABELS`.

    There are m = ⌊0.024n⌋ distinct keys, each in exactly `PLANTED_OCCURRENCES` notes; about five of six notes with a
    key have one, the others two. Keys, and the notes they are in, are drawn uniformly by a public seed.

    Raises:
        ValueError: if n is not from 84 (two keys) to 20190.
    """
    if n < 84:
        raise ValueError(f"n must be at least 84, for two planted keys in {PLANTED_OCCURRENCES} notes each, not {n}")
    drawn = notes(n, seed)
    rng = np.random.default_rng([seed, 1])
    secrets = 24 * n // 1000
    sentences = [f" {KEY_PREFIX}{key:05d}." for key in rng.choice(100_000, size=secrets, replace=False)]
    indices = secrets * PLANTED_OCCURRENCES
    private = indices * 5 // 6
    private += private % secrets == 0  # so that the second key of a note differs from the first
    holders = rng.choice(n, size=private, replace=False)
    texts = [text for text, _ in drawn]
    for index in range(indices):
        texts[holders[index % private]] += sentences[index % secrets]
    return [(text, label) for text, (_, label) in zip(texts, drawn, strict=True)]


def randhie() -> dict[str, Floats]:
    """The columns of the experiment's table, each float64 of shape (20190,)."""
    from statsmodels.datasets import randhie as experiment

    table = experiment.load_pandas().data
    return {name: table[name].to_numpy(dtype=np.float64) for name in table.columns}
