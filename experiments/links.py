#!/usr/bin/env python3
"""What `auto` takes by bytes and on five links, beside every exact method that it chooses from, the best of the tuned peers that it does not
choose from, and what `inspect` recommends.

    COREWIRE_DATA=folder/of/data experiments/links.py [--corewire target/release/corewire] [--own] [problem ...]

Prints Markdown; ends with 1 where auto costs more than 1.2 times the best, or where inspect names another method than auto takes.
`--own` leaves features and intercept as files of one's own have them by default; without it rows have unit norm and no intercept.
"""

import argparse
import json
import math
import os
import subprocess
import sys
import tempfile

METHODS = ["core-newton", "core-newton:detail=10", "core-newton:detail=100", "core-newton:detail=1e5", "core-agd", "core-cg", "cg", "lbfgs"]
# Tuned on the problem, for few bytes and for a long round trip; the best of them is shown.
PEERS = "dane,giant,disco,fednl,newton-sketch,lbfgs,cg:codec=bf16,cg:codec=int8"
TUNED_ON = (10, 100)
LINKS = [None, (1, 5), (10, 40), (10, 100), (100, 20), (0.1, 0)]
DATA = os.environ.get("COREWIRE_DATA", "data")
ALL = [f"problem.data={DATA}/train-images-idx3-ubyte.gz", "problem.classes=parity"]
MNIST = [*ALL, "problem.rows=2000"]
A9A, MUSHROOMS = [f"problem.data={DATA}/a9a.gz", "problem.rows=8000"], [f"problem.data={DATA}/mushrooms.gz"]
COVTYPE = [f"problem.data={DATA}/covtype.csv.xz", "problem.classes=[[1,3,4,5,6,7],[2]]"]
RIDGE, LABEL = ["problem.model=ridge"], ["problem.split=label"]
PROBLEMS = {
    "digits, ridge": RIDGE,
    "digits, logistic": [],
    "digits, ten classes": ["problem.model=softmax"],
    "MNIST, 2000 rows, ridge": [*MNIST, *RIDGE],
    "MNIST, 2000 rows, logistic": MNIST,
    "MNIST, 2000 rows, ridge, by label": [*MNIST, *RIDGE, *LABEL],
    "a9a, 8000 rows, ridge": [*A9A, *RIDGE],
    "a9a, 8000 rows, logistic": A9A,
    "a9a, 8000 rows, logistic, by label": [*A9A, *LABEL],
    "mushrooms, ridge": [*MUSHROOMS, *RIDGE],
    "mushrooms, logistic": MUSHROOMS,
    "mushrooms, ridge, by label": [*MUSHROOMS, *RIDGE, *LABEL],
    "covtype, 20,000 rows, ridge": [*COVTYPE, "problem.rows=20000", *RIDGE],
    "covtype, 20,000 rows, logistic": [*COVTYPE, "problem.rows=20000"],
    "covtype, 20,000 rows, logistic, by label": [*COVTYPE, "problem.rows=20000", *LABEL],
    "power law, d = 2000, quadratic": ["problem.data=power-law", "problem.dim=2000"],
    "MNIST, 60,000 rows, ridge": [*ALL, *RIDGE],
    "MNIST, 60,000 rows, logistic": ALL,
    "MNIST, 60,000 rows, logistic, by label": [*ALL, *LABEL],
    "covtype, 581,012 rows, logistic": COVTYPE,
}
# Where every run takes seconds, peers are as tuned for results/figures.md, and CORE's first-order methods are not set anew for every link.
TUNED = {
    "MNIST, 60,000 rows, ridge": "dane:scale=1024,giant:search=none,disco:scale=1,lbfgs:memory=20,cg:codec=int8,cg:codec=int8;replace=0",
    "MNIST, 60,000 rows, logistic": "dane:scale=512,giant:search=none,disco:scale=1,lbfgs:scale=2,cg:codec=int8",
    "MNIST, 60,000 rows, logistic, by label": "dane:scale=64,giant:search=none,disco:scale=0.25,lbfgs:scale=2,cg:codec=int8",
    "covtype, 581,012 rows, logistic": "dane:scale=2048,giant:search=none,disco:scale=1,lbfgs:scale=8,cg:codec=int8",
}
# Every machine of the synthetic quadratic has the same Hessian: whoever steps by the inverse of a machine's own, as GIANT and DANE do, solves
# it at once, and would show nothing.
OTHERS = {"power law, d = 2000, quadratic": "cg:codec=bf16,cg:codec=int8"}
# What auto does not try there, and takes minutes.
SKIPPED = {"power law, d = 2000, quadratic": ["core-newton:detail=100", "core-newton:detail=1e5"]}
# Peers of hundreds of rounds are given up after so many.
MOST_ROUNDS = 300
BOUND = 1.2
# A link on which `link_seconds` is what the messages take; every other follows from it.
BARE = (1, 0)
# Methods that choose their budget for the link.
FOR_A_LINK = ["core-agd", "core-cg"]


def named(mbit_s, rtt_ms):
    return [f"link.mbit_s={mbit_s}", f"link.rtt_ms={rtt_ms}"]


def at_one_mbit(run, link):
    """What the messages of a run on this link would take at 1 Mbit/s, without waiting."""
    return (run["link_seconds"] - run["exchanges"] * link[1] / 1e3) * link[0] if run["link_seconds"] else 0


def seconds(exchanges, messages, link):
    return exchanges * link[1] / 1e3 + messages / link[0]


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

    def peers(problem, keys, link):
        """The peers that reach the target, tuned for this link: name, bytes on the wire, exchanges, and what their messages take at 1 Mbit/s."""
        known = TUNED.get(problem)
        tuning = ["--no-tune", "--methods", known] if known else ["--methods", OTHERS.get(problem, PEERS)]
        mbit_s, rtt_ms = link or BARE
        keys = [*keys, f"stop.rounds={MOST_ROUNDS}", *([] if link is None and not known else named(mbit_s, rtt_ms))]
        with tempfile.TemporaryDirectory() as folder:
            runs = call("compare", keys, *tuning, "--out", folder)
        return [(run["method"], run["wire_bytes"], run["exchanges"], at_one_mbit(run, (mbit_s, rtt_ms))) for run in runs if run.get("reached")]

    bad = []
    columns = [*METHODS, "the best peer"]
    print("| problem | by | auto | of the best | inspect | " + " | ".join(columns) + " |")
    print("| --- | --- | --- | ---: | --- | " + " | ".join("---:" for _ in columns) + " |")
    for problem, keys in PROBLEMS.items():
        if given.problems and not any(word in problem for word in given.problems):
            continue
        if not given.own and "power" not in problem:
            keys = [*keys, "problem.normalise=unit", "problem.intercept=false"]
        large, skipped = problem in TUNED, SKIPPED.get(problem, [])
        by_time = peers(problem, keys, TUNED_ON)
        by_bytes = by_time if large else peers(problem, keys, None)
        alike = {method: ask("run", keys + named(*BARE) + [f"method.name={method}"])
                 for method in METHODS if method not in skipped and (large or method not in FOR_A_LINK)}  # fmt: skip
        for link in LINKS:
            on = named(*link) if link else []
            auto, advice = ask("run", keys + on), ask("inspect", keys + on)["recommendation"]
            costs = []
            for method in METHODS:
                run = alike.get(method) or method not in skipped and ask("run", keys + on + [f"method.name={method}"])
                if not run or not run["reached"]:
                    costs.append(math.inf)
                elif link is None:
                    costs.append(run["wire_bytes"])
                else:
                    costs.append(seconds(run["exchanges"], at_one_mbit(run, BARE), link) if method in alike else run["link_seconds"])
            if link:
                others = [(seconds(exchanges, messages, link), name) for name, _, exchanges, messages in by_time]
            else:
                others = [(wire, name) for name, wire, _, _ in by_bytes]
            peer = min(others, default=(math.inf, "none"))
            ratio = auto["link_seconds" if link else "wire_bytes"] / min(*costs, peer[0])
            shown = ["–" if cost == math.inf else f"{cost:.2f} s" if link else f"{cost:,.0f}" for cost in [*costs, peer[0]]]
            name = f"{link[0]} Mbit/s, {link[1]} ms" if link else "bytes on the wire"
            cells = [problem, name, auto["method"], f"{ratio:.2f}", advice, *shown[:-1], f"{peer[1]}, {shown[-1]}"]
            print("| " + " | ".join(cells) + " |", flush=True)
            if ratio > BOUND or not auto["reached"] or advice != auto["method"]:
                bad.append(f"{problem}, {name}: {auto['method']} costs {ratio:.2f} times the best; inspect says {advice}")
    print("\n".join(["", *bad]) if bad else f"\nauto is within {BOUND} of the best everywhere, and is what inspect recommends")
    sys.exit(bool(bad))


if __name__ == "__main__":
    main()
