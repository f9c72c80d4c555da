#!/usr/bin/env python3
"""What `auto` takes by bytes and on five links, beside every exact method that it chooses from and what `inspect` recommends.

    COREWIRE_DATA=folder/of/data experiments/links.py [--corewire target/release/corewire] [--own] [problem ...]

Prints Markdown; ends with 1 where auto costs more than 1.2 times the best, or where inspect names another method than auto takes.
`--own` leaves features and intercept as files of one's own have them by default; without it rows have unit norm and no intercept.
"""

import argparse
import json
import os
import subprocess
import sys

METHODS = ["core-newton", "core-agd", "core-cg", "cg", "lbfgs"]
LINKS = [None, (1, 5), (10, 40), (10, 100), (100, 20), (0.1, 0)]
DATA = os.environ.get("COREWIRE_DATA", "data")
MNIST = [f"problem.data={DATA}/train-images-idx3-ubyte.gz", "problem.rows=2000", "problem.classes=parity"]
PROBLEMS = {
    "digits, logistic": [],
    "digits, ten classes": ["problem.model=softmax"],
    "MNIST, 2000 rows, ridge": [*MNIST, "problem.model=ridge"],
    "a9a, 8000 rows, logistic": [f"problem.data={DATA}/a9a.gz", "problem.rows=8000"],
    "mushrooms, logistic": [f"problem.data={DATA}/mushrooms.gz"],
    "covtype, 20,000 rows, ridge": [f"problem.data={DATA}/covtype.csv.xz", "problem.rows=20000", "problem.model=ridge",
                                    "problem.classes=[[1,3,4,5,6,7],[2]]"],
    "power law, d = 2000, quadratic": ["problem.data=power-law", "problem.dim=2000"],
}
BOUND = 1.2


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--corewire", default="target/release/corewire")
    parser.add_argument("--own", action="store_true")
    parser.add_argument("problems", nargs="*")
    given = parser.parse_args()

    def ask(command, keys):
        sets = [word for key in keys for word in ("--set", key)]
        output = subprocess.run([given.corewire, command, "--json", *sets], capture_output=True, text=True)
        if output.returncode not in (0, 2):
            sys.exit(output.stderr)
        return json.loads(output.stdout)

    bad = []
    print("| problem | by | auto | of the best | inspect | " + " | ".join(METHODS) + " |")
    print("| --- | --- | --- | ---: | --- | " + " | ".join("---:" for _ in METHODS) + " |")
    for problem, keys in PROBLEMS.items():
        if given.problems and not any(word in problem for word in given.problems):
            continue
        if not given.own and "power" not in problem:
            keys = [*keys, "problem.normalise=unit", "problem.intercept=false"]
        for link in LINKS:
            named = [f"link.mbit_s={link[0]}", f"link.rtt_ms={link[1]}"] if link else []
            cost = "link_seconds" if link else "wire_bytes"
            auto, advice = ask("run", keys + named), ask("inspect", keys + named)["recommendation"]
            runs = [ask("run", keys + named + [f"method.name={method}"]) for method in METHODS]
            costs = [run[cost] if run["reached"] else float("inf") for run in runs]
            ratio = auto[cost] / min(costs)
            shown = [f"{cost:.2f} s" if link else f"{cost:,.0f}" for cost in costs]
            name = f"{link[0]} Mbit/s, {link[1]} ms" if link else "bytes on the wire"
            print(f"| {problem} | {name} | {auto['method']} | {ratio:.2f} | {advice} | " + " | ".join(shown) + " |", flush=True)
            if ratio > BOUND or not auto["reached"] or advice != auto["method"]:
                bad.append(f"{problem}, {name}: {auto['method']} costs {ratio:.2f} times the best; inspect says {advice}")
    print("\n".join(["", *bad]) if bad else f"\nauto is within {BOUND} of the best everywhere, and is what inspect recommends")
    sys.exit(bool(bad))


if __name__ == "__main__":
    main()
