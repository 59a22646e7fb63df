"""The generators of the gallery: how each is run, what it claims, and what it documents as public.

A name in `cause` or `reading` says where the code of the named version does what was seen. Whoever changes a version
reads that code again.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).resolve().parent
SCRIPTS = HERE.parents[1] / "examples" / "generators"
PEOPLE, BINNED, DOMAINS = (SCRIPTS / name for name in ("people.csv", "people-binned.csv", "people-binned.yaml"))

EPSILON, DELTA = 1.0, 1e-5
"""Of every claim, and the nominal one beside which the controls are put."""


@dataclass(frozen=True, kw_only=True)
class Entry:
    """A generator with its settings.

    Attributes:
        name: of the entry and of its results file.
        title: on the page, without the version.
        package: on the package index; empty for dpassay's own.
        script: in `examples/generators/`, without its suffix.
        options: of the script; ``{seed}`` is the seed of a run.
        unprotected: the options that switch its protection off; None if it has no such switch, or none to switch off.
        claims: in words.
        private: whether it claims differential privacy at all.
        delta: of the claim.
        adjacency: of the claim.
        public: what it documents as public, or takes from the data, in words.
        schema: whether public domains are given to it, so that neighbours keep to them.
        label: column of the class, which it knows; empty if it knows none.
        data: that it reads.
        runs: most runs.
        probes: whether a probing data set is run first.
        reading: what a refutation is due to in its code; or what else a reader should know.
    """

    name: str
    title: str
    package: str
    script: str
    options: str = ""
    unprotected: str | None = None
    claims: str
    private: bool = True
    delta: float = 0.0
    adjacency: str = "add_remove"
    public: str
    schema: bool = False
    label: str = ""
    data: Path = BINNED
    runs: int = 200
    probes: bool = True
    reading: str = ""


_GIVEN = "the values of all columns, which are given; the number of synthetic rows"
_READ = "nothing is given but the number of synthetic rows; the values of columns are taken from the data"
_NONE = "none"

ENTRIES = (
    Entry(
        name="pac_synth",
        title="PAC-Synth, aggregate-seeded",
        package="pac-synth",
        script="pac_synth",
        options=f"--epsilon {EPSILON:g} --delta {DELTA:g}",
        unprotected=f"--epsilon 1e6 --delta {DELTA:g}",
        claims="(1, 10⁻⁵) for a record",
        delta=DELTA,
        public="the number of synthetic rows; values of columns are taken from the data and published above a "
        "threshold that is charged to δ",
        reading="At ε = 1 and 200 records its threshold leaves few values, so the output holds little of the data. "
        "A run fails when the noisy number of records is negative: it gets 0.005 of ε, which is noise of scale 200.",
    ),
    Entry(
        name="datasynthesizer_independent",
        title="DataSynthesizer, independent mode",
        package="DataSynthesizer",
        script="data_synthesizer",
        options=f"--mode independent --epsilon {EPSILON:g} --seed {{seed}}",
        unprotected="--mode independent --epsilon 0 --seed {seed}",
        claims="ε = 1 for a record that is replaced",
        adjacency="replace_one",
        public=_READ,
        reading="If no file of domains is given, `infer_domain` takes the values of a category from the data "
        "(`data_dropna.unique()`), and `inject_laplace_noise` adds noise to the shares of these values only. No column "
        "here has more than 20 values, so all are categories, and a value of one record is written only if that record "
        "is there. It is not always, since its noisy share may be negative, which counts as 0.",
    ),
    Entry(
        name="datasynthesizer_correlated",
        title="DataSynthesizer, correlated mode (PrivBayes), domains given",
        package="DataSynthesizer",
        script="data_synthesizer",
        options=f"--mode correlated --domains {DOMAINS.name} --epsilon {EPSILON:g} --seed {{seed}}",
        claims="ε = 1 for a record that is replaced",
        adjacency="replace_one",
        public=_GIVEN,
        schema=True,
        runs=60,
        reading="`get_noisy_distribution_of_attributes` counts, with noise, no values but those up to the largest "
        "index in the data (`encoded_dataset[attr].max()`), also where all values are given. A value behind those of "
        "the other records is written only if its record is there. Each column does so by itself: here `visits`, "
        "`coinsurance` and `health`, whose rare values come last.",
    ),
    Entry(
        name="smartnoise_mwem",
        title="SmartNoise MWEM",
        package="smartnoise-synth",
        script="smartnoise",
        options=f"--method mwem --epsilon {EPSILON:g}",
        unprotected="--method mwem --epsilon 1e6",
        claims="ε = 1 for a record",
        public=_READ,
        probes=False,
        reading="If no transformer is given, one is fitted to the data, and `LabelTransformer._fit` takes every value "
        "that it meets as a category (`self.labels[val] = self.category`), which no noise hides. A value of one record "
        "is written only if that record is there. Each column does so by itself.",
    ),
    Entry(
        name="smartnoise_mwem_public",
        title="SmartNoise MWEM, domains given",
        package="smartnoise-synth",
        script="smartnoise",
        options=f"--method mwem --domains {DOMAINS.name} --epsilon {EPSILON:g}",
        unprotected=f"--method mwem --domains {DOMAINS.name} --epsilon 1e6",
        claims="ε = 1 for a record",
        public=_GIVEN,
        schema=True,
        reading="`_histogram_from_data_attributes` takes the smallest and the largest index of each column from the "
        "data (`min(column)`, `max(column)`), also where the transformer knows all public values, and noise adds none. "
        "A value beyond those of the other records is written only if its record is there. Each column does so by "
        "itself: here `visits` and `health`, whose rare values come last. `coinsurance` 100 is, as a text, between "
        "others, so it is written without any record, and it takes a second column of the target to tell D′ from D.",
    ),
    Entry(
        name="smartnoise_mst",
        title="SmartNoise MST, domains given",
        package="smartnoise-synth",
        script="smartnoise",
        options=f"--method mst --domains {DOMAINS.name} --epsilon {EPSILON:g} --delta {DELTA:g}",
        claims="(1, 10⁻⁵) for a record",
        delta=DELTA,
        public=_GIVEN,
        schema=True,
        runs=60,
    ),
    Entry(
        name="dpmm_privbayes",
        title="dpmm PrivBayes, domains given, fitted in 500 steps",
        package="dpmm",
        script="dpmm_tables",
        options=f"--method privbayes --domains {DOMAINS.name} --iterations 500 --epsilon {EPSILON:g} --delta {DELTA:g}",
        unprotected=f"--method privbayes --domains {DOMAINS.name} --iterations 500 --epsilon 1e6 --delta {DELTA:g}",
        claims="(1, 10⁻⁵) for a record",
        delta=DELTA,
        public=_GIVEN,
        schema=True,
        runs=60,
        reading="`TableBinner.fit` takes a column that has one value in the data for a constant "
        "(`series.nunique(dropna=False) == 1`), also where all its values are given, and `inverse_transform` writes "
        "that value into each row. No noise hides it: if `deductible` is `no` in all records but the target's, D "
        "never yields a `yes` and D′ nearly always does. A table in which every column has one value fails "
        "(`No objects to concatenate`), and that depends on one record too.",
    ),
    Entry(
        name="table_evolution",
        title="dpassay table evolution",
        package="",
        script="dpassay_claim",
        options="--claim people-evolution.yaml",
        unprotected="--claim people-evolution.yaml --set noise_multiplier=0.001",
        claims="(1, 10⁻⁵) for a record",
        delta=DELTA,
        public=f"{_GIVEN}; the number of records",
        schema=True,
        runs=100,
    ),
    Entry(
        name="marginals",
        title="dpassay marginals (OpenDP's MST)",
        package="",
        script="dpassay_claim",
        options="--claim people-marginals.yaml",
        claims="(1, 10⁻⁵) for a record",
        delta=DELTA,
        public=f"{_GIVEN}; the number of records",
        schema=True,
        runs=60,
    ),
    Entry(
        name="sdv_ctgan",
        title="SDV CTGAN, 10 epochs",
        package="sdv",
        script="sdv_tables",
        options="--model ctgan --epochs 10",
        claims=_NONE,
        private=False,
        public="–",
        data=PEOPLE,
        runs=60,
        reading="A synthesizer has `enforce_min_max_values=True` unless told otherwise: numbers are cut to the "
        "smallest and the largest of the data, so the largest of the output often is that of the data.",
    ),
    Entry(
        name="sdv_copula",
        title="SDV Gaussian copula",
        package="sdv",
        script="sdv_tables",
        options="--model copula",
        claims=_NONE,
        private=False,
        public="–",
        data=PEOPLE,
        reading="A synthesizer has `enforce_min_max_values=True` unless told otherwise: `_reverse_transform` cuts "
        "numbers to the smallest and the largest of the data (`data.clip(self._min_value, self._max_value)`), and "
        "noise adds none. `sample` starts from a fixed seed (`FIXED_RNG_SEED`), so all runs on one data set are equal; "
        "the bound is about the generator as it is run.",
    ),
    Entry(
        name="smote",
        title="SMOTE of imbalanced-learn",
        package="imbalanced-learn",
        script="smote",
        claims=_NONE,
        private=False,
        public="–",
        label="limitation",
        data=PEOPLE,
        reading="A row that it makes lies between a record of the rarer class, here `limitation` = yes, and one of "
        "the 5 nearest of that class: `_generate_samples` returns `X[rows] + steps * diffs`, with random steps below "
        "1. So no number lies beyond those of the class, and one beyond those of its other records is written only if "
        "its record is there. The runs of the probe fail, as a class of one record has no neighbours.",
    ),
)

BY_NAME = {entry.name: entry for entry in ENTRIES}
