#!/usr/bin/env python3
"""Times corewire's sketches beside their peers, all in one run on this machine, one thread, f32, and prints the ratios.

A virtual environment is made beside this file on the first call. Needs cargo, a network for the first call, and nothing else.
"""

import argparse
import ctypes
import glob
import json
import os
import shutil
import subprocess
import sys
import time
import venv

HERE = os.path.dirname(os.path.abspath(__file__))
VENV = os.path.join(HERE, ".venv")
ONE_THREAD = {name: "1" for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "RAYON_NUM_THREADS")}
ONE_THREAD["MKL_THREADING_LAYER"] = "SEQUENTIAL"
DIM = 1 << 20
TILE = 1 << 15
REPEATS = 7
FALCONN = "1.3.1"


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--budget", type=int, default=256, help="rows for corewire's own kernels (cost is linear in it)")
    parser.add_argument("--mkl", action="store_true", help="also install and time Intel MKL's VSL (about 200 MB)")
    parser.add_argument("--torch", action="store_true", help="also install and time torch (several GB)")
    parser.add_argument("--json", action="store_true", help="print one JSON object a line instead of tables")
    return parser.parse_args()


def enter_venv(options):
    """Makes the environment where it is missing, installs what was asked, and runs this file again inside it."""
    python = os.path.join(VENV, "bin", "python")
    if not os.path.exists(python):
        venv.create(VENV, with_pip=True)
    wanted = ["numpy"] + ["mkl"] * options.mkl + ["torch"] * options.torch
    for package in wanted:
        command = [python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", package]
        if subprocess.call(command) != 0:
            print(f"`{package}` does not install here, so it is left out", file=sys.stderr)
    os.execve(python, [python, os.path.abspath(__file__), *sys.argv[1:]], {**os.environ, **ONE_THREAD})


def best(work):
    times = []
    for _ in range(REPEATS):
        start = time.perf_counter()
        work()
        times.append(time.perf_counter() - start)
    return min(times) * 1e9


def rust(options):
    folder = os.path.join(HERE, "rust")
    environment = {**os.environ, "RUSTFLAGS": "-C target-cpu=native"}
    command = ["cargo", "run", "--quiet", "--release", "--", str(options.budget)]
    lines = subprocess.run(command, cwd=folder, env=environment, check=True, stdout=subprocess.PIPE, text=True).stdout
    return [json.loads(line) for line in lines.splitlines()]


def tiles():
    """Starts of the pieces in which a peer makes its numbers: each stays in the second cache until it is multiplied."""
    return range(0, DIM, TILE)


def numpy_peers():
    import numpy

    a = (numpy.arange(DIM) % 1000).astype(numpy.float32) * numpy.float32(1e-3)
    numbers = numpy.empty(TILE, dtype=numpy.float32)
    for name in ("Philox", "SFC64"):
        generator = numpy.random.Generator(getattr(numpy.random, name)(1))

        def work():
            for start in tiles():
                generator.standard_normal(dtype=numpy.float32, out=numbers)
                numbers @ a[start : start + TILE]

        yield {"group": "project", "name": f"numpy {name}, normal and matmul", "ns": best(work) / DIM}
    stored = numpy.ones((256, DIM), dtype=numpy.float32)
    yield {"group": "project", "name": "stored matrix of 1 GiB, matmul", "ns": best(lambda: stored @ a) / stored.size}


def mkl_peers():
    found = glob.glob(os.path.join(VENV, "lib", "**", "libmkl_rt.so*"), recursive=True)
    if not found:
        return
    import numpy

    mkl = ctypes.CDLL(found[0])
    mkl.cblas_sdot.restype = ctypes.c_float
    a = numpy.ones(DIM, dtype=numpy.float32)
    numbers = numpy.empty(TILE, dtype=numpy.float32)
    # Made once: what Python does for a call is not MKL's.
    here, vector = ctypes.c_void_p(numbers.ctypes.data), [ctypes.c_void_p(a.ctypes.data + 4 * start) for start in tiles()]
    zero, one = ctypes.c_float(0), ctypes.c_float(1)
    inverse_distribution = 2
    for name, generator in (("Philox-10", 16 << 20), ("ARS-5", 15 << 20)):
        stream = ctypes.c_void_p()
        if mkl.vslNewStream(ctypes.byref(stream), generator, 1) != 0:
            continue

        def work():
            for start in vector:
                mkl.vsRngGaussian(inverse_distribution, stream, TILE, here, zero, one)
                mkl.cblas_sdot(TILE, here, 1, start, 1)

        yield {"group": "project", "name": f"MKL VSL {name}, inverse distribution, sdot", "ns": best(work) / DIM}


def torch_peers():
    try:
        import torch
    except ImportError:
        return
    torch.set_num_threads(1)
    a, numbers = torch.ones(DIM), torch.empty(TILE)

    def work():
        for start in tiles():
            torch.dot(numbers.normal_(), a[start : start + TILE])

    yield {"group": "project", "name": "torch normal_, dot", "ns": best(work) / DIM}


# Many calls at a time, so that the way from Python into C does not count.
FFHT_LOOP = """
#include "fht.h"
void transform_often(float *buffer, int len, int chunk, int count) {
    while (count--) FHTFloat(buffer, len, chunk);
}
"""


def ffht_peers():
    """FFHT's C code, which PyPI has in the sources of FALCONN, compiled for this CPU, with the chunk that suits it best."""
    compiler = shutil.which("cc")
    if compiler is None:
        print("FFHT is left out: there is no C compiler `cc`", file=sys.stderr)
        return
    import numpy

    folder = os.path.join(VENV, "ffht")
    library = os.path.join(folder, "ffht.so")
    if not os.path.exists(library):
        download = ["download", "--quiet", "--disable-pip-version-check", "--no-deps", "--no-binary", ":all:", "--dest", folder]
        if subprocess.call([sys.executable, "-m", "pip", *download, f"FALCONN=={FALCONN}"]) != 0:
            print("FFHT is left out: the sources of FALCONN cannot be had", file=sys.stderr)
            return
        shutil.unpack_archive(os.path.join(folder, f"FALCONN-{FALCONN}.tar.gz"), folder, filter="data")
        source = os.path.join(folder, f"FALCONN-{FALCONN}", "include", "falconn", "ffht")
        with open(os.path.join(source, "loop.c"), "w", encoding="utf-8") as file:
            file.write(FFHT_LOOP)
        flags = ["-O3", "-march=native", "-std=c99", "-shared", "-fPIC", "-o", library, "fht.c", "loop.c"]
        if subprocess.call([compiler, *flags], cwd=source) != 0:
            print("FFHT is left out: it does not compile here", file=sys.stderr)
            return
    transform = ctypes.CDLL(library).transform_often
    for log in (10, 13, 18, 20, 24):
        count = max((1 << 20) >> log, 1)
        store = numpy.zeros((1 << log) + 8, dtype=numpy.float32)
        aligned = ctypes.c_void_p(store.ctypes.data + -store.ctypes.data % 32)
        times = [best(lambda: transform(aligned, 1 << log, chunk, count)) for chunk in (64, 512, 4096, 16384) if chunk <= 1 << log]
        yield {"group": f"transform of 2^{log}", "name": "FFHT", "ns": min(times) / (count << log)}


def main():
    options = arguments()
    if os.path.realpath(sys.prefix) != os.path.realpath(VENV):
        enter_venv(options)
    rows = rust(options) + [row for peers in (numpy_peers, mkl_peers, torch_peers, ffht_peers) for row in peers()]
    if options.json:
        for row in rows:
            print(json.dumps(row))
        return
    print("| what | who | ns | times the first |\n| --- | --- | --- | --- |")
    for group in dict.fromkeys(row["group"] for row in rows):
        members = [row for row in rows if row["group"] == group]
        for row in members:
            print(f"| {group} | {row['name']} | {row['ns']:.4f} | {row['ns'] / members[0]['ns']:.2f} |")


if __name__ == "__main__":
    main()
