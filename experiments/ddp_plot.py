#!/usr/bin/env python3
"""Draws accuracy and loss against epochs and bytes, from the JSON lines of ddp_quality.py or figure-3.sh. Needs matplotlib.

    experiments/ddp_plot.py finalists.jsonl --out picture.svg --title "LeNet on MNIST"

A line is the mean over seeds, its band reaches from the lowest to the highest; of several rates of a hook the one with most seeds
is drawn. Bytes are those that a process has sent so far.
"""

import argparse
import collections
import json
import pathlib
import statistics

import matplotlib

matplotlib.use("Agg")
from matplotlib import pyplot, ticker  # noqa: E402

# A colour for each kind of hook, lighter from one of its kind to the next.
KINDS = {
    "plain": ["#1a1a1a"],
    "corewire": ["#0b4f9e", "#3d8bdb", "#8cc0f2", "#7d8fb3"],
    "PowerSGD": ["#a63c00", "#e8701a", "#f7b27a"],
    "EDEN": ["#11694a", "#2fa577", "#86d1b2", "#b5e0cd"],
    "Top-K": ["#6a3d9a", "#b294d1"],
    "QSGD": ["#8a6d1f", "#cdb25c"],
}
# Names for results that have none.
TITLES = {
    "none": "plain DDP",
    "powersgd": "PowerSGD, rank {rank}",
    "core": "corewire {wire}, ratio {ratio:g}",
    "core-gradient": "corewire {wire} on the gradient, ratio {ratio:g}",
}
GREY = "#5c6370"
PLAIN = ticker.FuncFormatter(lambda value, _: f"{value:g}")


def read(paths, epochs):
    """The finalists by name, in their order: of those that ran for so many epochs, if told, each with the rate that most seeds have, or the better one."""
    runs = collections.defaultdict(lambda: collections.defaultdict(list))
    for line in "\n".join(path.read_text() for path in paths).splitlines():
        run = json.loads(line)
        if run.get("history") and epochs in (None, len(run["history"])):
            runs[run.get("name") or TITLES[run["hook"]].format(**run)][run["lr"]].append(run)
    return {name: max(rates.values(), key=lambda runs: (len(runs), accuracy(runs))) for name, rates in runs.items()}


def accuracy(runs):
    return statistics.mean(run["accuracy"] for run in runs)


def colours(names):
    taken, found = collections.Counter(), {}
    for name in names:
        kind = next((kind for kind in KINDS if name.startswith(kind)), "QSGD")
        found[name] = KINDS[kind][taken[kind] % len(KINDS[kind])]
        taken[kind] += 1
    return found


def factor(run):
    """How many times fewer bytes than a ring all-reduce of the gradients."""
    return run["dense_bytes_per_step"] * run["steps"] / run["history"][-1]["sent_bytes"]


def label(name, runs):
    times = factor(runs[0])
    fewer = f", {times:.0f}×" if times >= 1.5 else ""
    return f"{name}, rate {runs[0]['lr']:g}: {100 * accuracy(runs):.2f} %{fewer}"


def draw(axes, runs, colour, name):
    epochs = min(len(run["history"]) for run in runs)
    x = {"epochs": range(1, epochs + 1), "bytes": [runs[0]["history"][k]["sent_bytes"] / 1e6 for k in range(epochs)]}
    values = {
        "accuracy": [[100 * run["history"][k]["accuracy"] for run in runs] for k in range(epochs)],
        "loss": [[run["history"][k]["loss"] for run in runs] for k in range(epochs)],
    }
    front = 3 if name.startswith(("plain", "corewire")) else 2
    for (row, column), axis in axes.items():
        across = values[row]
        axis.plot(x[column], [statistics.mean(part) for part in across], color=colour, linewidth=1.5, zorder=front, label=label(name, runs))
        if len(runs) > 1:
            low, high = zip(*((min(part), max(part)) for part in across))
            axis.fill_between(x[column], low, high, color=colour, alpha=0.15, linewidth=0, zorder=front - 0.5)


def dress(axes, runs):
    """Scales, names and a quiet grid; of the accuracies, the part where the finalists differ."""
    ends = [accuracy(each) for each in runs.values()]
    best, spread = 100 * max(ends), max(1.0, 100 * (max(ends) - statistics.median_low(ends)))
    for (row, column), axis in axes.items():
        axis.grid(True, color="#e6e8eb", linewidth=0.7)
        axis.set_axisbelow(True)
        axis.spines[["top", "right"]].set_visible(False)
        axis.spines[["left", "bottom"]].set_color("#b8bec6")
        axis.tick_params(colors=GREY, length=3)
        axis.tick_params(which="minor", length=0)
        if row == "accuracy":
            axis.set_ylim(best - 5 * spread, best + 0.5 * spread)
            axis.tick_params(labelbottom=False)
        else:
            axis.set_yscale("log")
            axis.yaxis.set_major_formatter(PLAIN)
            axis.yaxis.set_minor_formatter(PLAIN)
            axis.tick_params(axis="y", which="minor", labelcolor=GREY)
            axis.set_xlabel("epochs" if column == "epochs" else "MB sent by each process", color=GREY)
        if column == "bytes":
            axis.set_xscale("log")
            axis.xaxis.set_major_formatter(PLAIN)
            axis.tick_params(labelleft=False)
        else:
            axis.xaxis.set_major_locator(ticker.MaxNLocator(integer=True))
            axis.set_ylabel("test accuracy, %" if row == "accuracy" else "training loss", color=GREY)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("results", nargs="+", type=pathlib.Path)
    parser.add_argument("--out", type=pathlib.Path, required=True, help="an SVG or PNG file")
    parser.add_argument("--title")
    parser.add_argument("--epochs", type=int, help="only trainings of so many epochs")
    given = parser.parse_args()
    runs = read(given.results, given.epochs)
    if not runs:
        parser.error("no line has a history: run ddp_quality.py with --json")
    # The same bytes for the same results.
    pyplot.rcParams.update({"svg.hashsalt": "corewire", "font.size": 9, "font.family": "DejaVu Sans"})
    figure, grid = pyplot.subplots(2, 2, figsize=(9.5, 6.8), sharey="row", sharex="col", layout="constrained")
    keys = [(row, column) for row in ("accuracy", "loss") for column in ("epochs", "bytes")]
    axes = dict(zip(keys, grid.flat))
    for name, colour in colours(runs).items():
        draw(axes, runs[name], colour, name)
    dress(axes, runs)
    one = next(iter(runs.values()))[0]
    about = f"{one['parameters']:,} parameters, {one['machines']} processes, {one['steps']:,} steps"
    figure.suptitle(f"{given.title}: {about}" if given.title else about, x=0.01, ha="left", fontsize=10.5)
    handles, labels = axes["accuracy", "epochs"].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower left", ncols=2, frameon=False, labelcolor="#30363d", fontsize=8.5,
                  title="accuracy at the end, and how many times fewer bytes than a ring all-reduce", title_fontproperties={"size": 8.5},
                  alignment="left")  # fmt: skip
    figure.savefig(given.out, metadata={"Date": None} if given.out.suffix == ".svg" else None, dpi=150)


main()
