#!/usr/bin/env python3
"""CORE-Newton on every data set: exchanges and wire bytes to a relative 1e-6, means of five seeds, rows dealt at random and sorted by label.

COREWIRE_DATA names the folder of the data sets, COREWIRE the binary. Prints a table in Markdown. Exchanges are without those of set-up.
"""
import json
import os
import subprocess

BINARY = os.environ.get("COREWIRE", "target/release/corewire")
DATA = os.environ["COREWIRE_DATA"]
SEEDS = range(int(os.environ.get("SEEDS", "5")))
PLAIN = ["problem.normalise=unit", "problem.intercept=false"]
COVTYPE = [f"problem.data={DATA}/covtype.csv.xz", "problem.classes=[[1,3,4,5,6,7],[2]]"]
MNIST = [f"problem.data={DATA}/train-images-idx3-ubyte.gz", "problem.classes=parity"]
SETS = {
    "digits": [],
    "MNIST, 2000 rows": MNIST + ["problem.rows=2000"] + PLAIN,
    "MNIST, 60,000 rows": MNIST + PLAIN,
    "a9a, 8000 rows": [f"problem.data={DATA}/a9a.gz", "problem.rows=8000", "problem.task=binary"] + PLAIN,
    "mushrooms": [f"problem.data={DATA}/mushrooms.gz", "problem.task=binary"] + PLAIN,
    "covtype, 581,012 rows": COVTYPE + PLAIN,
}


def run(keys):
    arguments = [BINARY, "run", "--json", "--quiet"]
    for key in keys:
        arguments += ["--set", key]
    report = json.loads(subprocess.run(arguments, capture_output=True, text=True, check=False).stdout)
    assert report["reached"], (keys, report)
    return report


def mean(keys, method, seeds):
    reports = [run(keys + [f"method.name={method}", f"method.seed={seed}"]) for seed in seeds]
    average = lambda field: sum(report[field] for report in reports) / len(reports)
    return average("trips"), average("wire_bytes")


def shown(pair):
    return f"{pair[0]:.1f} / {pair[1]:,.0f}"


print("| data | model | core-newton, random | core-newton, by label | cg | lbfgs |")
print("| --- | --- | ---: | ---: | ---: | ---: |")
for name, keys in SETS.items():
    for model in ["ridge", "logistic"]:
        base = keys + [f"problem.model={model}"]
        cells = [shown(mean(base + [f"problem.split={split}"], "core-newton", SEEDS)) for split in ["random", "label"]]
        cells += [shown(mean(base, method, [0])) for method in ["cg", "lbfgs"]]
        print(f"| {name} | {model} | {' | '.join(cells)} |", flush=True)
