"""Rows between neighbours of the rarer class, by SMOTE of imbalanced-learn: `python smote.py DATA OUT`.

It claims no privacy. It is a control: an audit must find that it repeats its data.

Install: `pip install imbalanced-learn==0.14.2 pandas` (MIT).
"""

import argparse
from collections.abc import Sequence


def parser() -> argparse.ArgumentParser:
    """The options."""
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("data")
    options.add_argument("out")
    options.add_argument("--label", default="limitation")
    options.add_argument("--rows", type=int, default=200, help="public number of synthetic rows")
    return options


def main(words: Sequence[str] | None = None) -> None:
    """Reads the data and writes synthetic rows."""
    given = parser().parse_args(words)

    import pandas
    from imblearn.over_sampling import SMOTENC

    data = pandas.read_csv(given.data)
    label = data.pop(given.label)
    categories = [name for name in data.columns if not pandas.api.types.is_numeric_dtype(data[name])]
    rarer = label.value_counts().idxmin()
    wanted = {rarer: int((label == rarer).sum()) + given.rows}
    rows, classes = SMOTENC(categorical_features=categories, sampling_strategy=wanted).fit_resample(data, label)
    made = rows.iloc[len(data) :].copy()
    made[given.label] = classes.iloc[len(data) :]
    made.to_csv(given.out, index=False)


if __name__ == "__main__":
    main()
