#!/usr/bin/env python3
"""Accuracy against bytes of communication hooks on one network and data set: rates from one grid, then seeds at the best rate.

    experiments/ddp_quality.py --python .venv/bin/python --data mnist:FOLDER --net lenet --epochs 15 --runs lenet.jsonl > table.md

Each hook's rate is the best of the grid after `--grid-epochs` on rows kept from the training set; the finalists run on the whole test set.
Every run is kept in `--runs`, a line each, and none that stands there is trained again: a call that was stopped goes on where it was, and a
later one adds hooks, seeds or epochs. experiments/ddp_plot.py draws the file.
"""

import argparse
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile

SCRIPT = pathlib.Path(__file__).parents[1] / "python" / "examples" / "ddp_resnet18.py"
HOOKS = {
    "plain DDP": ["--hook", "none"],
    "bf16": ["--hook", "bf16"],
    "PowerSGD, rank 1": ["--hook", "powersgd", "--rank", "1"],
    "PowerSGD, rank 2": ["--hook", "powersgd", "--rank", "2"],
    "PowerSGD, rank 4": ["--hook", "powersgd", "--rank", "4"],
    "PowerSGD, rank 4 on the momentum": ["--hook", "powersgd", "--rank", "4", "--on", "momentum"],
    "corewire q, ratio 12": ["--hook", "core", "--ratio", "12"],
    "corewire q, ratio 37": ["--hook", "core", "--ratio", "37"],
    "corewire 4bit, ratio 37": ["--hook", "core", "--ratio", "37", "--wire", "4bit"],
    "corewire 1bit, ratio 12": ["--hook", "core", "--ratio", "12", "--wire", "1bit"],
    "corewire 1bit, ratio 7": ["--hook", "core", "--ratio", "7", "--wire", "1bit"],
    "corewire on the gradient, ratio 12": ["--hook", "core-gradient", "--ratio", "12"],
    **{
        f"{title} on the {on}": ["--hook", hook, "--ratio", ratio, "--on", on]
        for title, hook, ratio in [
            ("Top-K with error feedback, 1 of 100", "topk", "100"),
            ("QSGD, two bits", "qsgd", "1"),
            ("EDEN, one bit", "eden", "1"),
            ("EDEN, one bit for 12", "eden", "12"),
        ]
        for on in ("gradient", "momentum")
    },
}


class Runs:
    """Trainings by their arguments, kept in a file."""

    def __init__(self, path, python, machines):
        self.path, self.python, self.machines = path, python, machines
        lines = path.read_text().splitlines() if path.exists() else []
        self.known = {tuple(run["arguments"]): run for run in map(json.loads, lines)}

    def get(self, name, where, arguments):
        """The result of process 0; none where training ended with an error. `where` is what depends on the machine."""
        key = (str(self.machines), *arguments)
        if key not in self.known:
            result = self.train([*where, *arguments])
            print(f"{name}, {' '.join(arguments)}: {result and result['accuracy']}", file=sys.stderr, flush=True)
            if result is None:
                return None
            self.known[key] = {"name": name, "arguments": key, **result}
            with self.path.open("a") as file:
                file.write(json.dumps(self.known[key]) + "\n")
        return self.known[key]

    def train(self, arguments):
        with tempfile.NamedTemporaryFile("r") as result:
            command = [self.python, "-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={self.machines}", str(SCRIPT)]
            environment = {**os.environ, "OMP_NUM_THREADS": "1", "RAYON_NUM_THREADS": "1"}
            subprocess.run(
                [*command, *arguments, "--json", result.name], env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
            )
            written = result.read()
            return json.loads(written) if written else None


def row(name, rate, runs):
    if not runs:
        return f"| {name} | {rate} | ended with an error | | | |"
    accuracies = ", ".join(f"{100 * run['accuracy']:.2f}" for run in runs)
    losses = statistics.mean(run["loss"] for run in runs)
    dense = runs[0]["dense_bytes_per_step"]
    # Torch's all-reduce does not count its bytes.
    counted = runs[0]["counted_bytes_per_step"] or (dense / 2 if name == "bf16" else dense)
    return f"| {name} | {rate} | {losses:.4f} | {accuracies} | {counted:,.0f} | {dense / counted:.0f} |"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--python", default=sys.executable)
    parser.add_argument("--machines", type=int, default=4)
    parser.add_argument("--data", required=True)
    parser.add_argument("--net", default="lenet")
    parser.add_argument("--rows", type=int, default=12_000)
    parser.add_argument("--grid", nargs="+", default=["0.01", "0.03", "0.1"])
    parser.add_argument("--grid-epochs", type=int, default=3)
    parser.add_argument("--epochs", type=int, default=15)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--runs", type=pathlib.Path, default=pathlib.Path("ddp-quality.jsonl"), help="the file of all runs")
    parser.add_argument("--hooks", nargs="+", default=list(HOOKS), choices=list(HOOKS))
    given = parser.parse_args()
    runs = Runs(given.runs, given.python, given.machines)
    where = ["--data", given.data]
    common = ["--net", given.net, "--rows", str(given.rows), "--batch", "32"]
    best = {}
    for name in given.hooks:
        tried = {
            rate: runs.get(
                name, where,
                [*common, *HOOKS[name], "--lr", rate, "--epochs", str(given.grid_epochs), "--held-out", "2000", "--seed", "100"],
            )
            for rate in given.grid
        }  # fmt: skip
        best[name] = max(tried, key=lambda rate: tried[rate]["accuracy"] if tried[rate] else 0.0)
    finals = {name: [] for name in given.hooks}
    # Seed by seed, so that a call that is stopped leaves a whole table of fewer seeds.
    for seed in range(given.seeds):
        for name in given.hooks:
            final = [*common, *HOOKS[name], "--lr", best[name], "--epochs", str(given.epochs), "--history", "2000", "--seed", str(seed)]
            finals[name].append(runs.get(name, where, final))
    print(f"{given.net}, {given.rows} rows, {given.machines} processes, batch {given.machines} x 32, {given.epochs} epochs, {given.seeds} seeds\n")
    print("| hook | rate | training loss | test accuracy, % | bytes per process and step | fewer than plain |")
    print("| --- | ---: | ---: | ---: | ---: | ---: |")
    for name in given.hooks:
        print(row(name, best[name], [run for run in finals[name] if run]))


main()
