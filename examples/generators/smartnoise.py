"""Synthesizers of SmartNoise: `python smartnoise.py DATA OUT --method mwem --epsilon 1`.

MWEM claims (ε, 0)-differential privacy under adding or removing a record; AIM, MST, DP-CTGAN and PATE-CTGAN claim
(ε, δ). All columns are categories. With `--domains` their public values are given by a transformer that was fitted on
public rows; without it they are taken from the data, which is what the examples of the library's documentation do.

Install: `pip install smartnoise-synth==1.0.8` (MIT).
"""

import argparse
from collections.abc import Sequence

METHODS = ("mwem", "aim", "mst", "dpctgan", "patectgan")


def parser() -> argparse.ArgumentParser:
    """The options."""
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("data")
    options.add_argument("out")
    options.add_argument("--method", choices=METHODS, default="mwem")
    options.add_argument("--domains", help="schema of public domains, categories only")
    options.add_argument("--epsilon", type=float, default=1.0)
    options.add_argument("--delta", type=float, default=1e-5, help="not for mwem")
    options.add_argument("--rows", type=int, default=200, help="public number of synthetic rows")
    return options


def main(words: Sequence[str] | None = None) -> None:
    """Reads the data and writes synthetic rows."""
    given = parser().parse_args(words)

    import pandas
    from snsynth import Synthesizer

    data = pandas.read_csv(given.data, dtype=str, keep_default_na=False)
    extra = {} if given.method == "mwem" else {"delta": given.delta}
    synthesizer = Synthesizer.create(given.method, epsilon=given.epsilon, **extra)
    style = "gan" if given.method.endswith("gan") else "cube"
    known = {} if given.domains is None else {"transformer": fitted_on_public_rows(given.domains, style)}
    synthesizer.fit(data, categorical_columns=list(data.columns), **known)
    made = synthesizer.sample(given.rows)
    pandas.DataFrame(made, columns=data.columns).to_csv(given.out, index=False)


def fitted_on_public_rows(domains: str, style: str) -> object:
    """A transformer that knows every public value, and has seen no private row."""
    import pandas
    import yaml
    from snsynth.transform.table import TableTransformer

    with open(domains, encoding="utf-8") as file:
        values = {column["name"]: column["values"] for column in yaml.safe_load(file)["columns"]}
    longest = max(len(each) for each in values.values())
    rows = pandas.DataFrame(
        {name: [each[row % len(each)] for row in range(longest)] for name, each in values.items()}, dtype=object
    )
    transformer = TableTransformer.create(rows, style=style, categorical_columns=list(rows.columns))
    transformer.fit(rows)
    return transformer


if __name__ == "__main__":
    main()
