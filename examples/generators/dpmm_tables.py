"""MST, AIM and PrivBayes of dpmm with public domains: `python dpmm_tables.py DATA OUT --domains people-binned.yaml`.

They claim (ε, δ)-differential privacy under adding or removing a record. `--iterations` is in how many steps a model is
fitted to the noisy counts, which costs no privacy but most of the time.

Install: `pip install dpmm==0.1.9 pyyaml` (Apache-2.0).
"""

import argparse
from collections.abc import Sequence

METHODS = {"mst": "MSTPipeline", "aim": "AIMPipeline", "privbayes": "PrivBayesPipeline"}


def parser() -> argparse.ArgumentParser:
    """The options."""
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("data")
    options.add_argument("out")
    options.add_argument("--method", choices=METHODS, default="mst")
    options.add_argument("--domains", required=True, help="schema of public domains, categories only")
    options.add_argument("--epsilon", type=float, default=1.0)
    options.add_argument("--delta", type=float, default=1e-5)
    options.add_argument("--rows", type=int, default=200, help="public number of synthetic rows")
    options.add_argument("--iterations", type=int, help="steps of the fit; default: that of the method")
    return options


def main(words: Sequence[str] | None = None) -> None:
    """Reads the data and writes synthetic rows."""
    given = parser().parse_args(words)

    import pandas
    import yaml
    from dpmm import pipelines

    with open(given.domains, encoding="utf-8") as file:
        columns = yaml.safe_load(file)["columns"]
    domain = {column["name"]: {"categories": column["values"]} for column in columns}
    data = pandas.read_csv(given.data, dtype=str, keep_default_na=False)
    for name, about in domain.items():
        data[name] = pandas.Categorical(data[name], categories=about["categories"])
    made = getattr(pipelines, METHODS[given.method])
    steps = None if given.iterations is None else {"n_iters": given.iterations}
    pipeline = made(epsilon=given.epsilon, delta=given.delta, proc_epsilon=None, n_jobs=1, gen_kwargs=steps)
    pipeline.fit(data, domain)
    pipeline.generate(n_records=given.rows).to_csv(given.out, index=False)


if __name__ == "__main__":
    main()
