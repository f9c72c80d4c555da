#!/usr/bin/env python3
"""Accuracy against bytes of communication hooks on one network and data set: rates from one grid, then seeds at the best rate.

    experiments/ddp_quality.py --python .venv/bin/python --data mnist:FOLDER --net lenet --epochs 15 > table.md

Each hook's rate is the best of the grid after `--grid-epochs` on rows kept from the training set; the finalists run on the whole test set.
With `--json FILE` their results are kept, a line each, for experiments/ddp_plot.py.
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
    "PowerSGD, rank 1": ["--hook", "powersgd", "--rank", "1"],
    "PowerSGD, rank 2": ["--hook", "powersgd", "--rank", "2"],
    "PowerSGD, rank 4": ["--hook", "powersgd", "--rank", "4"],
    "corewire q, ratio 12": ["--hook", "core", "--ratio", "12"],
    "corewire q, ratio 37": ["--hook", "core", "--ratio", "37"],
    "corewire 4bit, ratio 37": ["--hook", "core", "--ratio", "37", "--wire", "4bit"],
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


def train(python, machines, arguments):
    """The result of process 0; none where training ended with an error."""
    with tempfile.NamedTemporaryFile("r") as result:
        command = [python, "-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={machines}", str(SCRIPT)]
        environment = {**os.environ, "OMP_NUM_THREADS": "1", "RAYON_NUM_THREADS": "1"}
        subprocess.run(
            [*command, *arguments, "--json", result.name], env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        written = result.read()
        return json.loads(written) if written else None


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
    parser.add_argument("--json", type=pathlib.Path, help="appends the finalists' results to this file")
    parser.add_argument("--hooks", nargs="+", default=list(HOOKS), choices=list(HOOKS))
    given = parser.parse_args()
    common = ["--net", given.net, "--data", given.data, "--rows", str(given.rows), "--batch", "32"]
    print(f"{given.net}, {given.rows} rows, {given.machines} processes, batch {given.machines} x 32, {given.epochs} epochs, {given.seeds} seeds\n")
    print("| hook | rate | training loss | test accuracy, % | bytes per process and step | fewer than plain |")
    print("| --- | ---: | ---: | ---: | ---: | ---: |", flush=True)
    for name in given.hooks:
        hook, scores = HOOKS[name], {}
        for rate in given.grid:
            tried = train(
                given.python, given.machines,
                [*common, *hook, "--lr", rate, "--epochs", str(given.grid_epochs), "--held-out", "2000", "--seed", "100"],
            )  # fmt: skip
            scores[rate] = tried["accuracy"] if tried else 0.0
        best = max(scores, key=scores.get)
        final = [*common, *hook, "--lr", best, "--epochs", str(given.epochs), "--history", "2000"]
        runs = [train(given.python, given.machines, [*final, "--seed", str(seed)]) for seed in range(given.seeds)]
        runs = [run for run in runs if run]
        if not runs:
            print(f"| {name} | {best} | ended with an error | | | |", flush=True)
            continue
        if given.json:
            with given.json.open("a") as file:
                file.writelines(json.dumps({"name": name, "kept_back": scores, **run}) + "\n" for run in runs)
        accuracies = ", ".join(f"{100 * run['accuracy']:.2f}" for run in runs)
        losses = statistics.mean(run["loss"] for run in runs)
        run = runs[0]
        # Torch's all-reduce does not count its bytes.
        counted = run["counted_bytes_per_step"] or run["dense_bytes_per_step"]
        fewer = run["dense_bytes_per_step"] / counted
        print(f"| {name} | {best} | {losses:.4f} | {accuracies} | {counted:.0f} | {fewer:.0f} |", flush=True)


main()
