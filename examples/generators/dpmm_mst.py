"""MST of dpmm with public domains: `python dpmm_mst.py DATA OUT --domains people-binned.yaml --epsilon 1`.

It claims (ε, δ)-differential privacy under adding or removing a record.

Install: `pip install dpmm==0.1.9 pyyaml` (Apache-2.0).
"""

import argparse

import pandas
import yaml
from dpmm.pipelines import MSTPipeline

parser = argparse.ArgumentParser()
parser.add_argument("data")
parser.add_argument("out")
parser.add_argument("--domains", required=True, help="schema of public domains, categories only")
parser.add_argument("--epsilon", type=float, default=1.0)
parser.add_argument("--delta", type=float, default=1e-5)
parser.add_argument("--rows", type=int, default=200, help="public number of synthetic rows")
given = parser.parse_args()

with open(given.domains, encoding="utf-8") as file:
    columns = yaml.safe_load(file)["columns"]
domain = {column["name"]: {"categories": column["values"]} for column in columns}
data = pandas.read_csv(given.data, dtype=str, keep_default_na=False)
for name, about in domain.items():
    data[name] = pandas.Categorical(data[name], categories=about["categories"])
pipeline = MSTPipeline(epsilon=given.epsilon, delta=given.delta, proc_epsilon=None, n_jobs=1)
pipeline.fit(data, domain)
pipeline.generate(n_records=given.rows).to_csv(given.out, index=False)
