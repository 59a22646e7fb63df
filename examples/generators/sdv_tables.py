"""Synthesizers of SDV: `python sdv_tables.py DATA OUT --model ctgan`.

They claim no privacy. They are controls: they repeat no row, but fit ranges, categories and distributions to their data
without noise. The Gaussian copula draws its rows with a fixed seed, as SDV does.

Install: `pip install sdv==2.0.0` (Business Source License; used for this comparison only).
"""

import argparse
import warnings
from collections.abc import Sequence

MODELS = {"copula": "GaussianCopulaSynthesizer", "ctgan": "CTGANSynthesizer", "tvae": "TVAESynthesizer"}


def parser() -> argparse.ArgumentParser:
    """The options."""
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("data")
    options.add_argument("out")
    options.add_argument("--model", choices=MODELS, default="copula")
    options.add_argument("--epochs", type=int, default=300, help="of ctgan and tvae")
    options.add_argument("--rows", type=int, default=200, help="public number of synthetic rows")
    return options


def main(words: Sequence[str] | None = None) -> None:
    """Reads the data and writes synthetic rows."""
    given = parser().parse_args(words)

    import pandas
    from sdv import single_table
    from sdv.metadata import Metadata

    warnings.simplefilter("ignore")
    data = pandas.read_csv(given.data)
    about = Metadata.detect_from_dataframes({"people": data})
    trained = {} if given.model == "copula" else {"epochs": given.epochs}
    synthesizer = getattr(single_table, MODELS[given.model])(about, **trained)
    synthesizer.fit({"people": data})
    synthesizer.sample(given.rows)["people"].to_csv(given.out, index=False)


if __name__ == "__main__":
    main()
