#!/usr/bin/env python3
"""Times corewire's sketches beside their peers, all in one run on this machine, one thread, f32, and prints the ratios.

A virtual environment is made beside this file on the first call. Needs cargo, a network for the first call, and nothing else.
"""

import argparse
import ctypes
import glob
import json
import os
import subprocess
import sys
import time
import venv

HERE = os.path.dirname(os.path.abspath(__file__))
VENV = os.path.join(HERE, ".venv")
ONE_THREAD = {name: "1" for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "RAYON_NUM_THREADS")}
DIM = 1 << 20
ROWS = 4
REPEATS = 7


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


def numpy_peers():
    import numpy

    a = (numpy.arange(DIM) % 1000).astype(numpy.float32) * numpy.float32(1e-3)
    for name in ("Philox", "SFC64"):
        generator = numpy.random.Generator(getattr(numpy.random, name)(1))

        def work():
            generator.standard_normal((ROWS, DIM), dtype=numpy.float32) @ a

        yield {"group": "project", "name": f"numpy {name}, normal and matmul", "ns": best(work) / (ROWS * DIM)}
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
    # In tiles of 16 KiB, as our own kernels do: the numbers are multiplied while they are in the first cache.
    tile = 4096
    numbers = numpy.empty(tile, dtype=numpy.float32)
    pointer = lambda array, offset=0: ctypes.c_void_p(array.ctypes.data + 4 * offset)
    for name, generator in (("Philox-10", 16 << 20), ("ARS-5", 15 << 20)):
        stream = ctypes.c_void_p()
        if mkl.vslNewStream(ctypes.byref(stream), generator, 1) != 0:
            continue

        def work():
            for start in range(0, DIM, tile):
                mkl.vsRngGaussian(2, stream, tile, pointer(numbers), ctypes.c_float(0), ctypes.c_float(1))
                mkl.cblas_sdot(tile, pointer(numbers), 1, pointer(a, start), 1)

        yield {"group": "project", "name": f"MKL VSL {name}, inverse distribution, sdot", "ns": best(work) / DIM}


def torch_peers():
    try:
        import torch
    except ImportError:
        return
    torch.set_num_threads(1)
    a = torch.ones(DIM)
    buffer = torch.empty(ROWS, DIM)
    yield {"group": "project", "name": "torch normal_, mv", "ns": best(lambda: torch.mv(buffer.normal_(), a)) / (ROWS * DIM)}


def main():
    options = arguments()
    if os.path.realpath(sys.prefix) != os.path.realpath(VENV):
        enter_venv(options)
    rows = rust(options) + list(numpy_peers()) + list(mkl_peers()) + list(torch_peers())
    if options.json:
        for row in rows:
            print(json.dumps(row))
        return
    for group in dict.fromkeys(row["group"] for row in rows):
        members = [row for row in rows if row["group"] == group]
        base = members[0]["ns"]
        print(f"\n{group}: nanoseconds, and how many times `{members[0]['name']}`")
        for row in members:
            print(f"  {row['name']:<46} {row['ns']:9.4f}  {row['ns'] / base:6.2f}x")


if __name__ == "__main__":
    main()
