"""DataSynthesizer: `python data_synthesizer.py DATA OUT --mode correlated --epsilon 1 --seed N`.

It claims (ε, 0)-differential privacy under replacing a record; the correlated mode is its PrivBayes. ε = 0 switches its
noise off. Its random numbers come from a seed, 0 by default, so an audit gives it a new one for each run. With
`--domains` the public values of categories are given; without it they are taken from the data, as by default.

Install: `pip install DataSynthesizer==0.1.13 'pandas<3'` (MIT); pyyaml as well for `--domains`.
"""

import argparse
import json
import tempfile
from collections.abc import Sequence
from pathlib import Path

DEGREE = 2
"""Most parents of a column in the correlated mode."""


def parser() -> argparse.ArgumentParser:
    """The options."""
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("data")
    options.add_argument("out")
    options.add_argument("--mode", choices=("independent", "correlated"), default="independent")
    options.add_argument("--domains", help="schema of public domains, categories only")
    options.add_argument("--epsilon", type=float, default=1.0)
    options.add_argument("--rows", type=int, default=200, help="public number of synthetic rows")
    options.add_argument("--seed", type=int, required=True)
    return options


def main(words: Sequence[str] | None = None) -> None:
    """Reads the data and writes synthetic rows."""
    given = parser().parse_args(words)

    import numpy
    from DataSynthesizer.DataDescriber import DataDescriber
    from DataSynthesizer.DataGenerator import DataGenerator

    numpy.set_printoptions(legacy="1.25")  # it evaluates numbers that it has written, which NumPy 2 writes otherwise
    describer, generator = DataDescriber(), DataGenerator()
    correlated = given.mode == "correlated"
    with tempfile.TemporaryDirectory() as folder:
        known = {} if given.domains is None else public_columns(given.domains, Path(folder))
        asked = {"epsilon": given.epsilon, "seed": given.seed, **known}
        if correlated:
            describer.describe_dataset_in_correlated_attribute_mode(given.data, k=DEGREE, **asked)
        else:
            describer.describe_dataset_in_independent_attribute_mode(given.data, **asked)
        description = str(Path(folder) / "description.json")
        describer.save_dataset_description_to_file(description)
        seed = (given.seed + 1) % 2**32
        if correlated:
            generator.generate_dataset_in_correlated_attribute_mode(given.rows, description, seed=seed)
        else:
            generator.generate_dataset_in_independent_mode(given.rows, description, seed=seed)
        generator.save_synthetic_data(given.out)


def public_columns(domains: str, folder: Path) -> dict[str, object]:
    """Types and values of all columns, as DataSynthesizer takes them."""
    import yaml

    with open(domains, encoding="utf-8") as file:
        values = {column["name"]: column["values"] for column in yaml.safe_load(file)["columns"]}
    whole = {name: all(value.isdigit() for value in each) for name, each in values.items()}
    typed = {name: [int(value) for value in each] if whole[name] else each for name, each in values.items()}
    path = folder / "domains.json"
    path.write_text(json.dumps(typed), encoding="utf-8")
    return {
        "attribute_to_datatype": {name: "Integer" if whole[name] else "String" for name in values},
        "attribute_to_is_categorical": dict.fromkeys(values, True),
        "attribute_to_is_candidate_key": dict.fromkeys(values, False),
        "categorical_attribute_domain_file": str(path),
    }


if __name__ == "__main__":
    main()
