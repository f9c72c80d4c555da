#!/usr/bin/env python3
"""The paper's figures on all rows: every method's exchanges, payload, bytes on the wire and seconds on five links, as Markdown, CSV and SVG.

    COREWIRE_DATA=folder/of/data experiments/figures.py [figure ...]      # mnist-ridge, mnist-logistic, covtype-logistic

COREWIRE names the binary, SEEDS how many seeds the short runs have (3), OUT the folder (experiments/results). Needs no package.
With ONLY=core-newton,dane these methods alone run again, in all their forms: the rows and curves of others stay as OUT has them.
Steps, codecs and k of the baselines are those that `corewire compare` found by tuning; see results/figures.md.
"""
import collections
import csv
import json
import math
import os
import pathlib
import subprocess
import sys
import tempfile

BINARY = os.environ.get("COREWIRE", "target/release/corewire")
DATA = os.environ["COREWIRE_DATA"]
SEEDS = int(os.environ.get("SEEDS", "3"))
HERE = pathlib.Path(__file__).parent
OUT = pathlib.Path(os.environ.get("OUT", HERE / "results"))
ONLY = [method for method in os.environ.get("ONLY", "").split(",") if method]
# Mbit/s and milliseconds of a round trip.
LINKS = [(1, 5), (10, 40), (10, 100), (100, 20), (0.1, 0)]
# Hundreds of rounds, or many rows to pack: one seed.
LONG = {"core-gd", "cgd", "acgd", "diana", "ef21", "qsgd", "dane", "ship-rows"}
SHORT = "core-newton,core-newton:detail=10,core-newton:detail=100,core-agd,core-cg,cg,cg:codec=int8,one-shot,ship-rows"
# A quadratic can be solved in one exchange, and codes of 8 bits can do without its products.
QUADRATIC = "core-newton:detail=1e5,cg:codec=int8;replace=0"
# The split changes nothing for these but the last digits.
ALIKE = "core-gd,cgd:scale=1"
# What tuning chose.
FIGURES = {
    "mnist-ridge": ("figure-1-mnist-ridge.toml", "train-images-idx3-ubyte.gz", {
        "random": f"{SHORT},{QUADRATIC},giant:search=none,lbfgs:scale=1;memory=20,disco:scale=1,dane:scale=1024,acgd:scale=1,{ALIKE},"
                  "ef21:scale=1024,diana:codec=eden;scale=2,qsgd:scale=2",
        "label": f"{SHORT},{QUADRATIC},giant,lbfgs:scale=1;memory=20,disco:scale=0.5,dane:scale=16,acgd:scale=1,"
                 "ef21:scale=1024,diana:codec=eden;scale=2,qsgd:scale=1",
    }),
    "mnist-logistic": ("figure-1-mnist-logistic.toml", "train-images-idx3-ubyte.gz", {
        "random": f"{SHORT},giant:search=none,lbfgs:scale=2,disco:scale=1,dane:scale=512,acgd:scale=2,{ALIKE},"
                  "ef21:k=32;scale=512,diana:codec=eden;scale=2,qsgd:scale=0.5",
        "label": f"{SHORT},giant:search=none,lbfgs:scale=2,disco:scale=0.25,dane:scale=64,acgd:scale=2,"
                 "ef21:k=32;scale=512,diana:codec=eden;scale=2,qsgd:scale=0.5",
    }),
    "covtype-logistic": ("figure-2-covtype-logistic.toml", "covtype.csv.xz", {
        "random": f"{SHORT},giant:search=none,lbfgs:scale=8,disco:scale=1,dane:scale=2048,acgd:scale=1,{ALIKE},"
                  "ef21:scale=128,diana:codec=qsgd;scale=2,qsgd:scale=2",
        "label": f"{SHORT},giant,lbfgs:scale=8,disco:scale=1,dane:scale=32,acgd:scale=1,"
                 "ef21:scale=128,diana:codec=qsgd;scale=2,qsgd:scale=1",
    }),
}


def compare(job, data, split, methods, seed, folder):
    # On 1 Mbit/s without a round trip `link_seconds` is what the longest messages take; every other link follows from it.
    keys = [f"problem.data={DATA}/{data}", f"problem.split={split}", f"method.seed={seed}", "link.mbit_s=1", "link.rtt_ms=0",
            "stop.rounds=1000"]
    sets = [word for key in keys for word in ("--set", key)]
    command = [BINARY, "compare", str(HERE / job), *sets, "--no-tune", "--json", "--methods", methods, "--out", str(folder)]
    output = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    return [json.loads(line) for line in output.splitlines()]


def seconds(run, link):
    mbit_s, rtt_ms = link
    return run["exchanges"] * rtt_ms / 1e3 + run["link_seconds"] / mbit_s


def size(count):
    for unit, scale in (("MB", 1e6), ("kB", 1e3)):
        if count >= scale:
            return f"{count / scale:.3g} {unit}"
    return f"{count:.0f} B"


def row(name, runs):
    if "error" in runs[0]:
        return math.inf, f"| {name} | {runs[0]['error']} |" + " |" * 10
    mean = lambda of: sum(of(run) for run in runs) / len(runs)
    wires = [run["wire_bytes"] for run in runs]
    reached = all(run["reached"] for run in runs)
    verdict = "yes" if reached else f"no ({max(run['relative'] for run in runs):.0e} after {runs[0]['rounds']} rounds)"
    payload = mean(lambda run: run["up_bytes"] + run["down_bytes"])
    spread = f"{size(min(wires))} to {size(max(wires))}" if len(runs) > 1 else ""
    cells = [name, verdict, f"{mean(lambda run: run['exchanges']):.3g}", size(payload), size(mean(lambda run: run["wire_bytes"])), spread]
    cells += [f"{mean(lambda run: seconds(run, link)):.3g}" if reached else "" for link in LINKS]
    rank = mean(lambda run: run["wire_bytes"]) if reached else 1e12 * (1 + max(run["relative"] for run in runs))
    return rank, "| " + " | ".join(cells) + " |"


def recorded(figure, split):
    """What OUT has of the methods that do not run again: rows of the table as `row` gives them, and the points of their curves."""
    section = (OUT / "figures.md").read_text().split(f"## {figure}, {split}\n")[1].split("\n## ")[0]
    rows = {}
    for at, line in enumerate(section.splitlines()):
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if len(cells) > 5 and (cells[1] == "yes" or cells[1].startswith("no (")) and cells[0].split(":")[0] not in ONLY:
            number, unit = cells[4].split()
            wire = float(number) * {"B": 1, "kB": 1e3, "MB": 1e6}[unit]
            rows[cells[0]] = (wire if cells[1] == "yes" else 1e15 + at, line, cells[0])
    with open(OUT / f"figure-{figure}-{split}.csv", newline="") as file:
        points = [point for point in csv.DictReader(file) if point["method"].split(":")[0] not in ONLY]
    return rows, points


def plot(curves, path, title):
    """Relative suboptimality against bytes on the wire and against exchanges, both logarithmic."""
    # Forms of core-newton are of one colour, lighter from one to the next.
    newton = iter(["#a50f15", "#de2d26", "#fb6a4a", "#fcae91"])
    others = iter(["#e07b39", "#e8b23a", "#8a5a44", "#1f4e79", "#2e86ab", "#6c757d", "#3a7d44", "#7fb069", "#7b2d8b", "#b565a7",
               "#111111", "#5c8001", "#457b9d", "#9a8c98", "#bc6c25", "#00a6a6", "#d4a5a5"])
    colours = [next(newton if name.startswith("core-newton") else others) for name in curves]
    parts = ['<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 1010 400" font-family="sans-serif" font-size="11">',
             '<rect width="1010" height="400" fill="white"/>', f'<text x="40" y="18" font-size="13">{title}</text>']
    for left, column, label in [(50, "wire_bytes", "bytes on the wire per machine"), (430, "exchanges", "exchanges")]:
        most = max(float(point[column]) for points in curves.values() for point in points)
        least = min(float(points[0][column]) for points in curves.values())
        low, high = math.floor(math.log10(max(least, 1))), math.ceil(math.log10(most))
        across = lambda value: left + 330 * (math.log10(max(value, 1)) - low) / (high - low)
        down = lambda value: 40 + 300 * min(1.02, -math.log10(min(max(value, 1e-7), 1)) / 7)
        for power in range(low, high + 1):
            x = across(10**power)
            parts += [f'<path d="M{x:.1f} 40V340" stroke="#ddd"/>', f'<text x="{x:.1f}" y="354" text-anchor="middle">1e{power}</text>']
        for power in range(0, 8):
            y = down(10**-power)
            parts += [f'<path d="M{left} {y:.1f}h330" stroke="#ddd"/>', f'<text x="{left - 4}" y="{y + 4:.1f}" text-anchor="end">{f"1e-{power}" if power else 1}</text>']
        parts.append(f'<text x="{left + 165}" y="372" text-anchor="middle">{label}; relative suboptimality downwards</text>')
        for colour, points in zip(colours, curves.values()):
            places = [(across(float(p[column])), down(float(p["relative"]))) for p in points if p["relative"]]
            line = " ".join(f"{x:.1f},{y:.1f}" for x, y in places)
            parts.append(f'<polyline points="{line}" fill="none" stroke="{colour}" stroke-width="1.6"/>')
            # What is over after one round is no line.
            parts += [f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3" fill="{colour}"/>' for x, y in places if len(places) == 1]
    for at, (colour, name) in enumerate(zip(colours, curves)):
        y = 48 + 18 * at
        parts += [f'<path d="M775 {y}h18" stroke="{colour}" stroke-width="3"/>', f'<text x="798" y="{y + 4}">{name}</text>']
    path.write_text("\n".join(parts + ["</svg>"]) + "\n")


def main():
    OUT.mkdir(exist_ok=True)
    for figure in sys.argv[1:] or FIGURES:
        job, data, splits = FIGURES[figure]
        for split, tuned in splits.items():
            methods = [method for method in tuned.split(",") if not ONLY or method.split(":")[0] in ONLY]
            found = collections.defaultdict(list)
            with tempfile.TemporaryDirectory() as folder:
                for run in compare(job, data, split, ",".join(methods), 0, folder):
                    found[run["method"]].append(run)
                with open(f"{folder}/compare.csv", newline="") as file:
                    points = list(csv.DictReader(file))
            short = ",".join(method for method in methods if method.split(":")[0] not in LONG)
            for seed in range(1, SEEDS):
                with tempfile.TemporaryDirectory() as folder:
                    for run in compare(job, data, split, short, seed, folder):
                        found[run["method"]].append(run)
            best = {}
            for method, runs in found.items():
                family = method if method.startswith(("cg:", "core-newton:")) else method.split(":")[0]
                best[family] = min(best.get(family, (math.inf, "", "")), (*row(method, runs), method))
            kept_methods = {method for _, _, method in best.values()}
            points = [point for point in points if point["method"] in kept_methods]
            if ONLY:
                rows, others = recorded(figure, split)
                best, points = best | rows, points + others
            curves = collections.defaultdict(list)
            for point in points:
                curves[point["method"]].append(point)
            name = f"figure-{figure}-{split}"
            kept = ["method", "round", "relative", "up_bytes", "down_bytes", "wire_bytes", "exchanges"]
            with open(OUT / f"{name}.csv", "w", newline="") as file:
                writer = csv.DictWriter(file, kept, extrasaction="ignore", lineterminator="\n")
                writer.writeheader()
                writer.writerows(dict(point, relative=f"{float(point['relative']):.3e}") for point in points)
            plot(curves, OUT / f"{name}.svg", f"{figure}, {split} split, 50 machines, alpha 1e-3")
            print(f"\n## {figure}, {split}\n\n![{name}]({name}.svg)\n")
            print("| method | reached | exchanges | payload | wire | seeds | " + " | ".join(f"{m} Mbit/s, {r} ms" for m, r in LINKS) + " |")
            print("| --- | --- | ---: | ---: | ---: | --- |" + " ---: |" * len(LINKS))
            print("\n".join(text for _, text, _ in sorted(best.values())), flush=True)


main()
