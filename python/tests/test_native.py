"""The native half: the bits of the Rust library, laws of the codes, and what is refused."""

import doctest
import pathlib
import re
import subprocess
import sys

import corewire
import numpy as np
import pytest
from corewire import Quantiser, Sketch
from corewire._native import MeanWire, fill_bucket, fold_momentum

ANSWERS = pathlib.Path(__file__).parents[2] / "crates" / "sketch"


def known_answers(kind, file="known-answers.txt"):
    """The lines of a kind as dictionaries, with the answer as a list of words."""
    for line in (ANSWERS / file).read_text().splitlines():
        if line.startswith(kind + " "):
            keys, answer = line[len(kind) :].split(" :")
            yield {**dict(pair.split("=") for pair in keys.split()), "answer": answer.split()}


def bits(array):
    return [f"{word:0{2 * array.itemsize}x}" for word in array.view(f"u{array.itemsize}")]


@pytest.mark.parametrize("kind", ["project", "rebuild"])
def test_the_bits_are_those_of_the_known_answers(kind):
    checked = 0
    for case in known_answers(kind):
        if "block" in case or "from" in case:
            continue
        dim, budget, dtype = int(case["dim"]), int(case["budget"]), {"f32": np.float32, "f64": np.float64}[case["type"]]
        sketch, divisor = Sketch(dim, budget, case["family"], seed=2026), 3 if "thirds" in case else 1
        if kind == "project":
            vector = (((37 * np.arange(dim)) % 19 - 9) / 8 / divisor).astype(dtype)
            found = sketch.project(int(case["round"]), vector)
        else:
            scalars = (((5 * np.arange(budget)) % 11 - 5) / 4 / divisor).astype(dtype)
            found = sketch.reconstruct(int(case["round"]), scalars)
        assert bits(found)[: len(case["answer"])] == case["answer"], case
        checked += 1
    assert checked >= 8, checked


@pytest.mark.parametrize("kind, expected", [("integers", 7), ("scalars", 7), ("message", 7), ("bulk", 3)])
def test_the_code_is_that_of_the_known_answers(kind, expected):
    codec, checked = Quantiser(2026), 0
    for case in known_answers(kind, "code-answers.txt"):
        round, rank, count, step = int(case["round"]), int(case["rank"]), int(case["count"]), float(case["step"])
        j = np.arange(count)
        scalars = ((37 * j) % 19 - 9) / 8 * np.where(j % 50 == 49, 1000, 1)
        integers = codec.quantise(round, rank, scalars, step)
        if kind == "integers":
            assert integers.tolist() == [int(word) for word in case["answer"]]
        elif kind == "scalars":
            assert bits(codec.dequantise(round, rank, integers, step)) == case["answer"]
        elif kind == "message":
            message = bytes.fromhex("".join(case["answer"]))
            assert codec.encode(round, rank, integers) == message
            assert np.array_equal(codec.decode(round, rank, message, count), integers)
        elif rank or not count:
            # What the wire of one machine sends has rank 0 and a piece.
            continue
        else:
            (message,) = MeanWire(2026, count, 1, "q").split(round, 0, scalars.astype(np.float32), step)
            assert message[4:] == bytes.fromhex("".join(case["answer"])) and int.from_bytes(message[:4], "little") == len(message) - 4
        checked += 1
    assert checked == expected


def test_examples_in_the_docstrings_run():
    for thing in (Sketch, Quantiser, fold_momentum):
        examples = doctest.DocTestParser().get_doctest(thing.__doc__, {}, thing.__name__, None, 0)
        assert examples.examples
        assert doctest.DocTestRunner().run(examples).failed == 0


@pytest.mark.parametrize("dtype", ["float32", "float64"])
# One, few and all rows, more than half of them, and orders that are 1, 5/8 and 6/8 of a power of two.
@pytest.mark.parametrize("dim, budget", [(1, 1), (5, 3), (65_536, 5000), (70_000, 70_000), (90_000, 98_304), (120_000, 3)])
def test_torchs_own_operations_have_the_same_bits(dim, budget, dtype):
    torch = pytest.importorskip("torch")
    from corewire._device import DeviceSketch

    sketch, vector = Sketch(dim, budget, seed=7), np.random.default_rng(1).standard_normal(dim).astype(dtype)
    device = DeviceSketch(sketch, torch.device("cpu"))
    scalars = sketch.project(3, vector)
    assert np.array_equal(device.project(3, torch.from_numpy(vector)).numpy(), scalars)
    assert np.array_equal(device.reconstruct(3, torch.from_numpy(scalars)).numpy(), sketch.reconstruct(3, scalars))
    with pytest.raises(ValueError, match="rademacher"):
        Sketch(3, 1, "rademacher").rows(0)


def test_out_is_written_in_place_and_the_mean_over_rounds_is_the_vector():
    sketch, vector = Sketch(50, 20, seed=3), np.linspace(-1, 1, 50)
    total, scalars, out = np.zeros(50), np.empty(20), np.empty(50)
    for round in range(4000):
        assert sketch.project(round, vector, scalars) is scalars
        total += sketch.reconstruct(round, scalars, out)
    # A coordinate's deviation is about sqrt(d/m) ||a||/sqrt(d) = 0.9, its mean's over 4000 rounds 0.015; five of these.
    assert np.abs(total / 4000 - vector).max() < 0.075


def read_only(length):
    array = np.zeros(length)
    array.flags.writeable = False
    return array


def project_onto_itself(vector):
    Sketch(len(vector), len(vector)).project(0, vector, vector)


@pytest.mark.parametrize(
    "make, what",
    [
        (lambda: Sketch(0, 1), "dimension is 0"),
        (lambda: Sketch(10, 0), "budget"),
        (lambda: Sketch(-1, 4), "dim: -1 is not a whole number"),
        (lambda: Sketch(10, 4).project(-1, np.zeros(10)), "round: -1"),
        (lambda: Quantiser(1).quantise(0, -1, np.zeros(3), 1.0), "rank: -1"),
        (lambda: Quantiser(1).quantise(0, 0, np.array([1e30]), 1e-3), "step"),
        (lambda: Sketch(10, 4, "cauchy"), "family"),
        (lambda: Sketch(10, 4, seed="secret"), "seed"),
        (lambda: Sketch(10, 4, seed=b"short"), "seed"),
        (lambda: Sketch(10, 4).project(0, np.zeros(9)), "vector: 9 numbers where 10 are due"),
        (lambda: Sketch(10, 4).project(0, np.zeros(20)[::2]), "not contiguous"),
        (lambda: Sketch(10, 4).reconstruct(0, np.zeros(4), np.zeros(9)), "out: 9 numbers where 10 are due"),
        (lambda: Sketch(10, 4).project(0, np.zeros(10), read_only(4)), "out: the array is read-only"),
        (lambda: project_onto_itself(np.zeros(4)), "out: the array is in use"),
        (lambda: Quantiser(1).quantise(0, 0, np.zeros(3), 0.0), "step"),
        (lambda: Quantiser(1).quantise(0, 0, np.array([np.nan]), 1.0), "not finite"),
        (lambda: Quantiser(1).decode(0, 0, b"\xff" * 40, 2), "message"),
        (lambda: MeanWire(1, 10, 2, "gzip"), "code"),
        (lambda: MeanWire(1, 10, 0, "q"), "machines"),
        (lambda: MeanWire(1, 10, 2, "q").split(0, 2, np.zeros(10, np.float32), 1.0), "rank"),
        (
            lambda: MeanWire(1, 2, 2, "q").integers(0, 0, np.full(2, 200, np.float32), 1.0, np.empty(2, np.int8)),
            "beyond 127 steps",
        ),
        (lambda: MeanWire(1, 10, 2, "q").combine(0, 0, [b"", b""], 1.0, 1.0), "machine 0"),
    ],
)
def test_bad_arguments_are_named(make, what):
    with pytest.raises(ValueError, match=re.escape(what)):
        make()


@pytest.mark.parametrize("array", [np.zeros(10, np.int32), np.zeros((2, 5)), [0.0] * 10, np.zeros(10, np.float16)])
def test_other_types_are_refused(array):
    with pytest.raises(TypeError, match="vector: a one-dimensional numpy array of float32 or float64"):
        Sketch(10, 4).project(0, array)
    with pytest.raises(TypeError, match="scalars: a one-dimensional numpy array of float32 or float64"):
        Sketch(10, 10).reconstruct(0, array)
    with pytest.raises(TypeError, match="out: a one-dimensional numpy array of the other argument's type"):
        Sketch(10, 10).reconstruct(0, np.zeros(10), array)


@pytest.mark.parametrize("array", [np.zeros(10), np.zeros(10, np.int64), np.zeros((2, 5), np.int32), [0] * 10])
def test_integers_of_other_types_are_refused(array):
    for call in (lambda: Quantiser(1).encode(0, 0, array), lambda: Quantiser(1).dequantise(0, 0, array, 1.0)):
        with pytest.raises(TypeError, match="integers: a one-dimensional numpy array of int32"):
            call()


@pytest.mark.parametrize("code", ["q", "4bit"])
@pytest.mark.parametrize("scalars, machines", [(1, 3), (7, 2), (70_001, 1), (200_000, 3)])
def test_a_sharded_hub_gives_all_machines_the_same_unbiased_mean(code, scalars, machines):
    random = np.random.default_rng(5)
    wire = MeanWire(9, scalars, machines, code)
    theirs = [random.standard_normal(scalars).astype(np.float32) for _ in range(machines)]
    step = 0.8
    sent = [wire.split(4, rank, theirs[rank], step) for rank in range(machines)]
    replies = [wire.combine(4, hub, [sent[rank][hub] for rank in range(machines)], step, step) for hub in range(machines)]
    outs = [np.empty(scalars, np.float32) for _ in range(machines)]
    squares = {wire.join(4, replies, step, out) for out in outs}
    assert len(squares) == 1 and all((out == outs[0]).all() for out in outs)
    error = outs[0] - np.mean(theirs, axis=0)
    # Uniform errors within half a step up and down; a 4-bit piece may widen its step to a seventh of its largest scalar.
    assert np.abs(error).max() <= step + 1e-5
    if scalars > 1000:
        deviation = step * np.sqrt((1 / machines + 1) / 12)
        assert abs(error.mean()) < 5 * deviation / np.sqrt(scalars)
        assert abs(error.std() / deviation - 1) < 0.02
    if code == "4bit" and scalars > 1000:
        assert sum(len(message) for message in sent[0]) <= scalars / 2 + 8 * (scalars / 2**15 + machines + 1)


def test_signs_of_rotations_are_unbiased():
    dim, budget, machines, rounds = 24_000, 4000, 2, 400
    random = np.random.default_rng(7)
    theirs = [random.standard_normal(dim).astype(np.float32) for _ in range(machines)]
    sketch, wire = Sketch(dim, budget, "hadamard", 3), MeanWire(3, budget, machines, "1bit")
    sums, errors, mean = np.zeros(dim), [], np.mean(theirs, axis=0)
    for round in range(rounds):
        scalars = [sketch.project(round, vector) for vector in theirs]
        sent = [wire.split(round, rank, scalars[rank], 0.0) for rank in range(machines)]
        replies = [wire.combine(round, hub, [messages[hub] for messages in sent], 0.0, 0.0) for hub in range(machines)]
        out = np.empty(budget, np.float32)
        wire.join(round, replies, 0.0, out)
        rebuilt = sketch.reconstruct(round, out)
        errors.append(np.square(rebuilt - mean).sum())
        sums += rebuilt
    # The squared error of a mean of so many is one's own over their number; a sum over 24,000 coordinates is within a twentieth of it.
    assert np.square(sums / rounds - mean).sum() < 1.05 * np.mean(errors) / rounds
    # Shards of 2000 are rotated by powers of two: a bit each, and a length and a scale in each of two messages.
    assert sum(map(len, sent[0])) == 2 * (2000 / 8 + 8)


def test_sums_of_bytes_give_the_mean():
    scalars, machines, step = 50_000, 4, 0.5
    random = np.random.default_rng(6)
    wire = MeanWire(9, scalars, machines, "q")
    theirs = [random.standard_normal(scalars).astype(np.float32) for _ in range(machines)]
    sums = np.zeros(scalars, np.int8)
    for rank, scalar in enumerate(theirs):
        integers = np.empty(scalars, np.int8)
        wire.integers(1, rank, scalar, step, integers)
        sums += integers
    mean = np.empty(scalars, np.float32)
    wire.mean_of_sums(1, sums, step, mean)
    error = mean - np.mean(theirs, axis=0)
    assert np.abs(error).max() <= step / 2 + 1e-5
    assert abs(error.std() / (step / np.sqrt(12 * machines)) - 1) < 0.02


SHORT_OF_MEMORY = """
import resource
import numpy as np
from corewire import Quantiser, Sketch
resource.setrlimit(resource.RLIMIT_AS, (3 << 30, 3 << 30))
calls = [
    lambda: Quantiser(1).decode(0, 0, b"", 1 << 30),
    lambda: Sketch(1 << 36, 4).signs(0),
    lambda: Sketch(1 << 36, 4).rows(0),
]
for call in calls:
    try:
        call()
    except MemoryError as error:
        print(str(error).split(":")[0])
"""


def test_what_does_not_fit_into_memory_is_refused_and_ends_nothing(tmp_path):
    found = subprocess.run([sys.executable, "-c", SHORT_OF_MEMORY], cwd=tmp_path, capture_output=True, text=True)
    assert (found.returncode, found.stdout.split()) == (0, ["count", "dim", "dim"]), found.stderr


def test_the_source_folder_says_how_to_install_it(tmp_path):
    source = pathlib.Path(__file__).parents[1] / "corewire" / "__init__.py"
    (tmp_path / "corewire").mkdir()
    (tmp_path / "corewire" / "__init__.py").write_text(source.read_text())
    found = subprocess.run([sys.executable, "-c", "import corewire"], cwd=tmp_path, capture_output=True, text=True)
    assert "ImportError: corewire: " in found.stderr and "pip install ./python" in found.stderr, found.stderr


def test_there_is_a_version():
    assert re.fullmatch(r"\d+\.\d+\.\d+", corewire.__version__)


def test_gradients_enter_the_momentum_from_where_they_lie_and_the_estimate_goes_back():
    random = np.random.default_rng(1)
    # Longer than a thread's piece, in another order than the model's, with a gap in the bucket.
    sizes = [5, 150_000, 1, 70_000]
    offsets = np.cumsum([0, *sizes])
    starts = [offsets[4] - offsets[k + 1] + 3 * (k == 0) for k in range(4)]
    places = [(int(offsets[k]), int(starts[k]), sizes[k]) for k in range(4)]
    bucket = random.standard_normal(offsets[4] + 3).astype(np.float32)
    momentum, out = random.standard_normal((2, offsets[4])).astype(np.float32)
    gradient = np.concatenate([bucket[start : start + size] for start, size in zip(starts, sizes)])
    assert fold_momentum(bucket, places, momentum, 0.9, 0.5, out)
    assert np.array_equal(out, np.float32(0.9) * momentum + np.float32(0.5) * gradient)

    filled = bucket.copy()
    fill_bucket(out, places, filled)
    again = np.empty_like(out)
    fold_momentum(filled, places, np.zeros_like(out), 0.0, 1.0, again)
    assert np.array_equal(again, out)
    outside = np.ones(len(bucket), bool)
    for _, start, count in places:
        outside[start : start + count] = False
    assert outside.sum() == 3 and np.array_equal(filled[outside], bucket[outside])


@pytest.mark.parametrize("strange", [np.nan, np.inf, -np.inf])
def test_what_is_not_finite_is_found_wherever_it_is(strange):
    for at in (0, 65_535, 65_536, 99_999):
        bucket = np.full(100_000, 3e38, np.float32)
        momentum = np.zeros_like(bucket)
        assert fold_momentum(bucket, [(0, 0, 100_000)], momentum, 0.9, 1.0, np.empty_like(bucket))
        bucket[at] = strange
        assert not fold_momentum(bucket, [(0, 0, 100_000)], momentum, 0.9, 1.0, np.empty_like(bucket))


@pytest.mark.parametrize("places", [[(0, 0, 5)], [(2, 0, 3)], [(0, 2, 3)], [(0, 0, 3), (2, 2, 1)], [(2**63, 0, 1)]])
def test_places_outside_are_refused(places):
    four = np.zeros(4, np.float32)
    with pytest.raises(ValueError, match="places"):
        fold_momentum(four, places, four.copy(), 0.9, 1.0, four.copy())
    with pytest.raises(ValueError, match="places"):
        fill_bucket(four.copy(), places, four)


def test_a_quantiser_takes_both_widths():
    codec, scalars = Quantiser(1), np.linspace(-3, 3, 100, dtype=np.float32)
    narrow, wide = codec.quantise(2, 1, scalars, 0.5), codec.quantise(2, 1, scalars.astype(np.float64), 0.5)
    assert (narrow == wide).all()
    with pytest.raises(TypeError, match="scalars"):
        codec.quantise(0, 0, np.zeros(3, np.int64), 1.0)
