#!/usr/bin/env python3
"""What `auto` takes by bytes and on five links, beside every exact method that it chooses from, the best of the tuned peers that it does not
choose from, and what `inspect` recommends.

    COREWIRE_DATA=folder/of/data experiments/links.py [--corewire target/release/corewire] [--own] [problem ...]

Prints Markdown; ends with 1 where auto costs more than 1.2 times the best, or where inspect names another method than auto takes.
`--own` leaves features and intercept as files of one's own have them by default; without it rows have unit norm and no intercept.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile

METHODS = ["core-newton", "core-newton:detail=10", "core-newton:detail=100", "core-newton:detail=1e5", "core-agd", "core-cg", "cg", "lbfgs"]
# Tuned on the problem, for few bytes and for a long round trip; the best of them is shown.
PEERS = "dane,giant,disco,fednl,newton-sketch,cg:codec=bf16,cg:codec=int8"
TUNED_ON = (10, 100)
LINKS = [None, (1, 5), (10, 40), (10, 100), (100, 20), (0.1, 0)]
DATA = os.environ.get("COREWIRE_DATA", "data")
ALL = [f"problem.data={DATA}/train-images-idx3-ubyte.gz", "problem.classes=parity"]
MNIST = [*ALL, "problem.rows=2000"]
PROBLEMS = {
    "digits, logistic": [],
    "digits, ten classes": ["problem.model=softmax"],
    "MNIST, 2000 rows, ridge": [*MNIST, "problem.model=ridge"],
    "a9a, 8000 rows, logistic": [f"problem.data={DATA}/a9a.gz", "problem.rows=8000"],
    "mushrooms, logistic": [f"problem.data={DATA}/mushrooms.gz"],
    "covtype, 20,000 rows, ridge": [f"problem.data={DATA}/covtype.csv.xz", "problem.rows=20000", "problem.model=ridge",
                                    "problem.classes=[[1,3,4,5,6,7],[2]]"],
    "power law, d = 2000, quadratic": ["problem.data=power-law", "problem.dim=2000"],
    "MNIST, 60,000 rows, ridge": [*ALL, "problem.model=ridge"],
    "MNIST, 60,000 rows, logistic": ALL,
    "covtype, 581,012 rows, logistic": [f"problem.data={DATA}/covtype.csv.xz", "problem.classes=[[1,3,4,5,6,7],[2]]"],
}
# Those whose every run takes seconds: peers of hundreds of rounds are given up after so many.
MOST_ROUNDS = 300
BOUND = 1.2


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--corewire", default="target/release/corewire")
    parser.add_argument("--own", action="store_true")
    parser.add_argument("problems", nargs="*")
    given = parser.parse_args()

    def call(command, keys, *more):
        sets = [word for key in keys for word in ("--set", key)]
        output = subprocess.run([given.corewire, command, "--json", *sets, *more], capture_output=True, text=True)
        if output.returncode not in (0, 2):
            sys.exit(output.stderr)
        return [json.loads(line) for line in output.stdout.splitlines()]

    def ask(command, keys):
        return call(command, keys)[0]

    def peers(keys, link):
        """The peers that reach the target, tuned for this link: name, bytes on the wire, exchanges, and what their messages take at 1 Mbit/s."""
        named = [f"link.mbit_s={link[0]}", f"link.rtt_ms={link[1]}"] if link else []
        with tempfile.TemporaryDirectory() as folder:
            runs = call("compare", [*keys, *named, f"stop.rounds={MOST_ROUNDS}"], "--methods", PEERS, "--out", folder)
        for run in runs:
            if run.get("reached"):
                wait = run["exchanges"] * link[1] / 1e3 if link else 0
                yield run["method"], run["wire_bytes"], run["exchanges"], (run["link_seconds"] - wait) * link[0] if link else 0

    bad = []
    columns = [*METHODS, "the best peer"]
    print("| problem | by | auto | of the best | inspect | " + " | ".join(columns) + " |")
    print("| --- | --- | --- | ---: | --- | " + " | ".join("---:" for _ in columns) + " |")
    for problem, keys in PROBLEMS.items():
        if given.problems and not any(word in problem for word in given.problems):
            continue
        if not given.own and "power" not in problem:
            keys = [*keys, "problem.normalise=unit", "problem.intercept=false"]
        by_bytes, by_time = ([*peers(keys, link)] for link in (None, TUNED_ON))
        for link in LINKS:
            named = [f"link.mbit_s={link[0]}", f"link.rtt_ms={link[1]}"] if link else []
            cost = "link_seconds" if link else "wire_bytes"
            auto, advice = ask("run", keys + named), ask("inspect", keys + named)["recommendation"]
            runs = [ask("run", keys + named + [f"method.name={method}"]) for method in METHODS]
            costs = [run[cost] if run["reached"] else float("inf") for run in runs]
            if link:
                others = [(trips * link[1] / 1e3 + messages / link[0], name) for name, _, trips, messages in by_time]
            else:
                others = [(wire, name) for name, wire, _, _ in by_bytes]
            peer = min(others, default=(float("inf"), "none"))
            ratio = auto[cost] / min(*costs, peer[0])
            shown = [f"{cost:.2f} s" if link else f"{cost:,.0f}" for cost in [*costs, peer[0]]]
            name = f"{link[0]} Mbit/s, {link[1]} ms" if link else "bytes on the wire"
            cells = [problem, name, auto["method"], f"{ratio:.2f}", advice, *shown[:-1], f"{peer[1]}, {shown[-1]}"]
            print("| " + " | ".join(cells) + " |", flush=True)
            if ratio > BOUND or not auto["reached"] or advice != auto["method"]:
                bad.append(f"{problem}, {name}: {auto['method']} costs {ratio:.2f} times the best; inspect says {advice}")
    print("\n".join(["", *bad]) if bad else f"\nauto is within {BOUND} of the best everywhere, and is what inspect recommends")
    sys.exit(bool(bad))


if __name__ == "__main__":
    main()
