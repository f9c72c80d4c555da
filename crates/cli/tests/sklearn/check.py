"""Holds corewire against scikit-learn at the same penalty, and its exports against onnxruntime and plain numpy.

Usage: check.py BINARY FOLDER [DATA]: the command line, a folder to work in, and a folder with a9a, mushrooms and covtype.
"""

import csv
import gzip
import io
import json
import lzma
import math
import pathlib
import subprocess
import sys
import warnings

import numpy as np
import onnxruntime
from sklearn.compose import make_column_transformer
from sklearn.datasets import dump_svmlight_file, load_digits, load_svmlight_file
from sklearn.impute import SimpleImputer
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.metrics import accuracy_score, r2_score, roc_auc_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler, normalize

BINARY, FOLDER = sys.argv[1], pathlib.Path(sys.argv[2])
DATA = pathlib.Path(sys.argv[3]) if len(sys.argv) > 3 and sys.argv[3] else None
ALPHA = 1e-3


def corewire(*arguments, keys=()):
    """What it printed as JSON, one object per line."""
    sets = [word for key in keys for word in ("--set", key)]
    done = subprocess.run([BINARY, *arguments, *sets, "--json"], capture_output=True, text=True, cwd=FOLDER)
    # 2 says that a target was missed, which would show in what follows.
    if done.returncode not in (0, 2):
        sys.exit(f"corewire {arguments} {keys} failed: {done.stderr}")
    return [json.loads(line) for line in done.stdout.splitlines()]


def train(name, *arguments, keys=()):
    [report] = corewire("run", *arguments, "--out", f"{name}-run", keys=keys)
    assert report["reached"], f"{name}: {report}"
    return report, FOLDER / f"{name}-run" / "model.safetensors"


def evaluate(model, path):
    return corewire("evaluate", "--model", str(model), str(path))[0]


def near(what, ours, theirs, most):
    print(f"{what}: corewire {ours:.4f}, scikit-learn {theirs:.4f}")
    assert abs(ours - theirs) <= most, f"{what}: {ours} and {theirs} differ by more than {most}"


# What a model says, three times.


def predictions(model, path, classes):
    """Every class's probability, or the value; and the class."""
    rows = corewire("predict", "--model", str(model), str(path))
    if "probabilities" in rows[0]:
        return np.array([[row["probabilities"][name] for name in classes] for row in rows]), [row["prediction"] for row in rows]
    return np.array([[row["prediction"]] for row in rows]), None


def features(exported, columns, dense):
    """The features of a JSON export, in numpy: from columns by name, or from a matrix."""
    if exported["columns"] is None:
        x = dense
    else:
        parts = []
        for column in exported["columns"]:
            cells = columns[column["name"]]
            if column["kind"] == "category":
                parts += [[float(cell == word) for cell in cells] for word in column["words"]]
                continue
            numbers = np.array([math.nan if cell == "" else float(cell) for cell in cells])
            fill = column["fill"] if column["fill"] is not None else 0.0
            parts.append(np.where(np.isnan(numbers), fill, numbers))
            if column["indicator"]:
                parts.append(np.isnan(numbers).astype(float))
        x = np.array(parts).T
    if exported["rows_of_unit_norm"]:
        x = x / np.maximum(np.linalg.norm(x, axis=1, keepdims=True), 1e-300)
    return x


def by_numpy(exported, x):
    scores = x @ np.array(exported["coef_"]).T + np.array(exported["intercept_"])
    if exported["probabilities"] == "logistic":
        p = 1 / (1 + np.exp(-scores))
        return np.hstack([1 - p, p])
    if exported["probabilities"] == "softmax":
        e = np.exp(scores - scores.max(axis=1, keepdims=True))
        return e / e.sum(axis=1, keepdims=True)
    return scores


def by_onnx(path, exported, columns, dense):
    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    feed = {}
    for wanted in session.get_inputs():
        if wanted.name == "features" and exported["columns"] is None:
            feed["features"] = dense
        elif "string" in wanted.type:
            feed[wanted.name] = np.array(columns[wanted.name], dtype=object).reshape(-1, 1)
        else:
            cells = [math.nan if cell == "" else float(cell) for cell in columns[wanted.name]]
            feed[wanted.name] = np.array(cells).reshape(-1, 1)
    return session.run(None, feed)


def round_trip(name, model, path, columns=None, dense=None):
    sklearn, onnx = FOLDER / f"{name}.json", FOLDER / f"{name}.onnx"
    corewire("export", str(model), "--sklearn", str(sklearn), "--onnx", str(onnx))
    exported = json.loads(sklearn.read_text())
    said, classes = predictions(model, path, exported["classes_"])
    numpy = by_numpy(exported, features(exported, columns, dense))
    found = by_onnx(onnx, exported, columns, dense)
    # Values are compared relative to the largest; ONNX's linear operators have 32 bits.
    size = max(1.0, np.abs(said).max())
    apart = [np.abs(numpy - said).max() / size, np.abs(found[-1] - said).max() / size]
    print(f"{name}: predictions of numpy within {apart[0]:.1e}, of onnxruntime within {apart[1]:.1e}")
    assert max(apart) < 1e-6, f"{name}: {apart}"
    if classes is not None:
        sure = np.abs(np.sort(said, axis=1)[:, -1] - np.sort(said, axis=1)[:, -2]) > 1e-5
        assert all(a == b for a, b, clear in zip(found[0], classes, sure) if clear), f"{name}: labels differ"


# The problems.


def churn_rows(count, random):
    """Three numbers with gaps, three words with gaps, and one in ten who leaves."""
    age, months = random.integers(18, 80, count).astype(float), random.exponential(24, count).round(1)
    bill = random.lognormal(3.5, 0.6, count).round(2)
    plan = random.choice(["basic", "family", "gold, with roaming", "student"], count, p=[0.5, 0.25, 0.2, 0.05])
    region = random.choice([f"region {i}" for i in range(20)], count)
    paid = random.choice(["card", "invoice", "transfer"], count)
    score = -3.9 + 0.02 * (age - 45) - 0.05 * (months - 24) + 0.01 * bill
    score += np.select([plan == "basic", plan == "student"], [0.8, -0.7], 0.0) + 0.9 * (paid == "invoice")
    score += 0.04 * np.array([int(name.split()[1]) - 10 for name in region])
    gone = random.random(count) < 1 / (1 + np.exp(-score))
    # Bills are missing more often for those who leave: a gap says something.
    gaps = {"age": random.random(count) < 0.05, "bill": random.random(count) < np.where(gone, 0.25, 0.1)}
    cells = {"age": age, "months": months, "bill": bill, "plan": plan, "region": region, "paid": paid}
    columns = {name: [str(value) for value in values] for name, values in cells.items()}
    for name, missing in gaps.items():
        columns[name] = ["" if gap else cell for cell, gap in zip(columns[name], missing)]
    columns["plan"] = ["" if gap else cell for cell, gap in zip(columns["plan"], random.random(count) < 0.03)]
    columns["gone"] = np.where(gone, "yes", "no").tolist()
    return columns


def write_csv(path, columns, rows):
    with open(path, "w", newline="") as out:
        writer = csv.writer(out)
        writer.writerow(columns)
        writer.writerows([[columns[name][i] for name in columns] for i in rows])


def check_churn():
    count, test = 20_000, 4_000
    columns = churn_rows(count + test, np.random.default_rng(7))
    for rank in range(4):
        write_csv(FOLDER / f"churn-{rank}.csv", columns, range(rank, count, 4))
    write_csv(FOLDER / "churn-test.csv", columns, range(count, count + test))
    (FOLDER / "churn.toml").write_text(
        '[problem]\ndata = "churn-{machine}.csv"\nmissing = "indicator"\ntest = "churn-test.csv"\n\n[machines]\ncount = 4\n'
    )
    report, model = train("churn", "churn.toml")
    numbers, words = ["age", "months", "bill"], ["plan", "region", "paid"]
    table = np.array([columns[name] for name in numbers + words], dtype=object).T
    table[:, :3] = [[math.nan if cell == "" else float(cell) for cell in row[:3]] for row in table]
    filled = make_pipeline(SimpleImputer(add_indicator=True), StandardScaler())
    by_word = OneHotEncoder(handle_unknown="ignore")
    pipeline = make_pipeline(
        make_column_transformer((filled, [0, 1, 2]), (by_word, [3, 4, 5])),
        LogisticRegression(C=1 / (ALPHA * count), max_iter=1000),
    )
    y = np.array(columns["gone"])
    pipeline.fit(table[:count], y[:count])
    theirs = roc_auc_score(y[count:] == "yes", pipeline.predict_proba(table[count:])[:, 1])
    share = (y == "yes").mean()
    print(f"churn: {100 * share:.1f} % leave; {report['wire_bytes']:.0f} bytes per machine, {report['method']}")
    near("churn, four shards, AUC", evaluate(model, "churn-test.csv")["auc"], theirs, 0.005)
    some = {name: columns[name][count:] for name in columns if name != "gone"}
    write_csv(FOLDER / "churn-new.csv", some, range(test))
    round_trip("churn", model, FOLDER / "churn-new.csv", columns=some)


def check_regression(name, target):
    random = np.random.default_rng(3)
    x = random.normal(size=(6000, 8)) * 10.0 ** np.arange(-3, 5) + 50
    y = target(x, random)
    rows = [list(map(repr, map(float, row))) + [repr(float(value))] for row, value in zip(x, y)]
    header = [f"f{j}" for j in range(8)] + ["y"]
    for part, lines in [("train", rows[:4000]), ("test", rows[4000:])]:
        with open(FOLDER / f"{name}-{part}.csv", "w", newline="") as out:
            csv.writer(out).writerows([header, *lines])
    keys = [f"problem.data={name}-train.csv", "problem.model=ridge", "machines.count=10"]
    _, model = train(name, keys=keys)
    theirs = make_pipeline(StandardScaler(), Ridge(alpha=ALPHA * 4000)).fit(x[:4000], y[:4000]).predict(x[4000:])
    ours = evaluate(model, f"{name}-test.csv")
    near(f"{name}, R2", ours["r2"], r2_score(y[4000:], theirs), 0.005)
    columns = {column: [row[j] for row in rows[4000:]] for j, column in enumerate(header[:-1])}
    round_trip(name, model, FOLDER / f"{name}-test.csv", columns=columns)


def check_classes(name, train_rows, test_rows, scaler, keys):
    """Accuracy on test rows in a file, at the default alpha."""
    (train_file, x, y), (test_file, x_test, y_test) = train_rows, test_rows
    _, model = train(name, keys=[f"problem.data={train_file}", "machines.count=20", *keys])
    logistic = LogisticRegression(C=1 / (ALPHA * len(y)), max_iter=2000)
    theirs = accuracy_score(y_test, make_pipeline(scaler, logistic).fit(x, y).predict(x_test))
    near(f"{name}, accuracy", evaluate(model, test_file)["accuracy"], theirs, 0.005)
    return model


def check_l1(name, data, x, y, l1, keys):
    """The coordinates that are not 0 are scikit-learn's, and f is within 1e-6 of the optimum."""
    x = normalize(x)
    keys = [f"problem.data={data}", f"problem.l1={l1}", "problem.normalise=unit", "problem.intercept=false", *keys]
    keys += ["stop.target=1e-9", "machines.count=50"]
    penalty = ALPHA + l1
    theirs = LogisticRegression(
        C=1 / (penalty * len(y)), l1_ratio=l1 / penalty, solver="saga", fit_intercept=False, tol=1e-7, max_iter=5000
    )
    support = np.flatnonzero(theirs.fit(x, y).coef_[0])
    report, model = train(f"{name}-l1", keys=keys)
    assert report["method"] == "core-newton" and report["relative"] <= 1e-6, report
    corewire("export", str(model), "--sklearn", f"{name}-l1.json")
    ours = np.flatnonzero(json.loads((FOLDER / f"{name}-l1.json").read_text())["coef_"][0])
    [plain] = corewire("run", keys=[*keys, "method.name=cgd", "stop.rounds=20000"])
    sent, more = report["wire_bytes"], plain["wire_bytes"] / report["wire_bytes"]
    print(f"{name}, l1: {len(ours)} of {x.shape[1]} coordinates, scikit-learn {len(support)}; {sent:.0f} B, cgd {more:.0f} x")
    assert list(ours) == list(support), f"{name}: {ours} and {support}"


def check_digits():
    """The bundled rows, which scikit-learn has too: of unit norm, and with a score per class."""
    _, model = train("digits", keys=["machines.count=10"])
    round_trip("digits", model, "digits", dense=load_digits().data)
    _, model = train("softmax", keys=["problem.model=softmax", "stop.target=1e-3", "method.name=lbfgs"])
    round_trip("softmax", model, "digits", dense=load_digits().data)


def check_files():
    x, y = load_svmlight_file(str(DATA / "a9a.gz"), n_features=123)
    x_test, y_test = load_svmlight_file(str(DATA / "a9a.t.gz"), n_features=123)
    sparse = StandardScaler(with_mean=False)
    model = check_classes(
        "a9a", (DATA / "a9a.gz", x, y), (DATA / "a9a.t.gz", x_test, y_test), sparse, ["machines.count=50"]
    )
    round_trip("a9a", model, DATA / "a9a.t.gz", dense=x_test.toarray())
    check_l1("a9a", DATA / "a9a.gz", x, y, 0.01, [])
    images, labels = (gzip.open(DATA / f"train-{kind}-ubyte.gz").read() for kind in ("images-idx3", "labels-idx1"))
    images = np.frombuffer(images, np.uint8, offset=16).reshape(-1, 784)[:2000].astype(float)
    even = np.frombuffer(labels, np.uint8, offset=8)[:2000] % 2 == 0
    keys = ["problem.rows=2000", "problem.classes=parity"]
    check_l1("mnist", DATA / "train-images-idx3-ubyte.gz", images, even, 0.003, keys)
    x, y = load_svmlight_file(str(DATA / "mushrooms.gz"), n_features=112)
    order = np.random.default_rng(1).permutation(len(y))
    parts = []
    for part, rows in [("train", order[:6000]), ("test", order[6000:])]:
        path = FOLDER / f"mushrooms-{part}.libsvm"
        dump_svmlight_file(x[rows], y[rows], str(path), zero_based=False)
        parts.append((path, x[rows], y[rows]))
    model = check_classes("mushrooms", *parts, sparse, [])
    round_trip("mushrooms", model, parts[1][0], dense=parts[1][1].toarray())
    rows = lzma.open(DATA / "covtype.csv.xz", "rt").read().splitlines()
    if not rows[0][0].isdigit():
        rows = rows[1:]
    order = np.random.default_rng(2).permutation(len(rows))[:60_000]
    parts = []
    for part, chosen in [("train", order[:40_000]), ("test", order[40_000:])]:
        lines = [rows[i] for i in chosen]
        path = FOLDER / f"covtype-{part}.csv"
        path.write_text("\n".join(lines) + "\n")
        table = np.loadtxt(io.StringIO("\n".join(lines)), delimiter=",")
        parts.append((path, table[:, :-1], table[:, -1] == 2))
    model = check_classes("covtype", *parts, StandardScaler(), ["problem.classes=[[1,3,4,5,6,7],[2]]"])
    columns = {f"x{place}": cells for place, cells in enumerate(parts[1][1].T, 1)}
    round_trip("covtype", model, parts[1][0], columns=columns)


def main():
    warnings.filterwarnings("ignore", category=FutureWarning)
    FOLDER.mkdir(parents=True, exist_ok=True)
    check_churn()
    noise = lambda random: random.normal(size=6000)
    linear = lambda x: ((x - 50) / 10.0 ** np.arange(-3, 5)) @ np.arange(1, 9)
    check_regression("far from 0", lambda x, random: 20_000 + linear(x) + 5 * noise(random))
    check_regression("ratings", lambda x, random: np.clip(np.round(4.5 + linear(x) / 8 + noise(random)), 0, 9))
    check_digits()
    if DATA is None:
        print("skipped: a9a, mushrooms and covtype, since COREWIRE_DATA is not set")
    else:
        check_files()
    print("corewire and scikit-learn agree")


main()
