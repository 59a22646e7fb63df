"""PAC-Synth, the aggregate-seeded synthesizer of Synthetic Data Showcase: `python pac_synth.py DATA OUT --epsilon 1`.

It claims (ε, δ)-differential privacy under adding or removing a record, and takes the values of columns from the data:
its threshold on single values is meant to hide values of few records. Zeros count as values here, not as empty cells.

Install: `pip install pac-synth==0.0.8 pandas` (MIT).
"""

import argparse
from collections.abc import Sequence


def parser() -> argparse.ArgumentParser:
    """The options."""
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("data")
    options.add_argument("out")
    options.add_argument("--epsilon", type=float, default=1.0)
    options.add_argument("--delta", type=float, default=1e-5)
    options.add_argument("--rows", type=int, default=200, help="public number of synthetic rows")
    return options


def main(words: Sequence[str] | None = None) -> None:
    """Reads the data and writes synthetic rows."""
    given = parser().parse_args(words)

    import pandas
    from pacsynth import Dataset, DpAggregateSeededParametersBuilder, DpAggregateSeededSynthesizer

    data = pandas.read_csv(given.data, dtype=str, keep_default_na=False)
    private = Dataset.from_data_frame(data, sensitive_zeros=list(data.columns))
    parameters = DpAggregateSeededParametersBuilder().epsilon(given.epsilon).delta(given.delta).build()
    synthesizer = DpAggregateSeededSynthesizer(parameters)
    synthesizer.fit(private)
    made = Dataset.raw_data_to_data_frame(synthesizer.sample(given.rows))
    made.to_csv(given.out, index=False)


if __name__ == "__main__":
    main()
