"""Rows between neighbours of the rarer class, by SMOTE of imbalanced-learn: `python smote.py DATA OUT`.

It claims no privacy. It is a control: an audit must find that it repeats its data.

Install: `pip install imbalanced-learn==0.14.2 pandas` (MIT).
"""

import argparse

import pandas
from imblearn.over_sampling import SMOTENC

parser = argparse.ArgumentParser()
parser.add_argument("data")
parser.add_argument("out")
parser.add_argument("--label", default="limitation")
parser.add_argument("--rows", type=int, default=200, help="public number of synthetic rows")
given = parser.parse_args()

data = pandas.read_csv(given.data)
label = data.pop(given.label)
words = [name for name in data.columns if not pandas.api.types.is_numeric_dtype(data[name])]
rarer = label.value_counts().idxmin()
wanted = {rarer: int((label == rarer).sum()) + given.rows}
rows, classes = SMOTENC(categorical_features=words, sampling_strategy=wanted).fit_resample(data, label)
made = rows.iloc[len(data) :].copy()
made[given.label] = classes.iloc[len(data) :]
made.to_csv(given.out, index=False)
