#!/usr/bin/env python3
"""How far core-newton is from the optimum where it ends by its own estimate of the gap: `stop.gap` at 4e-7, the default of sites.

COREWIRE_DATA names the folder of the data sets, COREWIRE the binary. People's own defaults: standardised features and an intercept. Prints a
table in Markdown: exchanges without those of set-up, and (f - f*)/(f0 - f*), for three seeds.
"""
import json
import os
import subprocess

BINARY = os.environ.get("COREWIRE", "target/release/corewire")
DATA = os.environ["COREWIRE_DATA"]
SETS = {
    "mushrooms": [f"problem.data={DATA}/mushrooms.gz", "problem.task=binary"],
    "a9a, 5000 rows": [f"problem.data={DATA}/a9a.gz", "problem.rows=5000", "problem.task=binary"],
    "covtype, 20,000 rows": [f"problem.data={DATA}/covtype.csv.xz", "problem.rows=20000", "problem.classes=[[1,3,4,5,6,7],[2]]"],
    "MNIST, 2000 rows": [f"problem.data={DATA}/train-images-idx3-ubyte.gz", "problem.rows=2000", "problem.classes=parity"],
}


def end(keys):
    arguments = [BINARY, "run", "--json", "--quiet", "--set", "method.name=core-newton", "--set", "stop.gap=4e-7", "--set", "stop.target=0"]
    for key in [*keys, "stop.rounds=300"]:
        arguments += ["--set", key]
    report = json.loads(subprocess.run(arguments, capture_output=True, text=True, check=False).stdout)
    if report["ended"] != "gap":
        return f"not in {report['rounds']}"
    left = (report["value"] - report["optimum"]) / (report["initial"] - report["optimum"])
    return f"{report['trips']}, {left:.0e}"


print("| data | model | split | alpha 1e-3 | 1e-4 | 1e-5 |")
print("| --- | --- | --- | --- | --- | --- |")
for name, keys in SETS.items():
    for model in ["ridge", "logistic"]:
        for split in ["random", "label"]:
            base = [*keys, f"problem.model={model}", f"problem.split={split}"]
            cells = ["; ".join(end([*base, f"problem.alpha={alpha}", f"method.seed={seed}"]) for seed in range(3)) for alpha in ["1e-3", "1e-4", "1e-5"]]
            print(f"| {name} | {model} | {split} | {' | '.join(cells)} |", flush=True)
