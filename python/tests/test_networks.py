"""The networks of the Rust crate against PyTorch's: same parameters, same batch, same loss and gradient; and checkpoints both ways."""

import json
import os
import pathlib
import shutil
import subprocess
import sys

import numpy as np
import pytest
import torch
from torch.nn import functional

from corewire._native import network_gradient, network_tensors

sys.path.insert(0, str(pathlib.Path(__file__).parents[1] / "examples"))

import ddp_resnet18  # noqa: E402

CASES = [("lenet", "lenet", 1, 28), ("small", "resnet-small", 3, 32), ("resnet18", "resnet18", 3, 32)]


def network(name, channels, classes=10):
    if name == "resnet18":
        pytest.importorskip("torchvision")
    torch.manual_seed(3)
    return ddp_resnet18.network(name, channels, classes)


@pytest.mark.parametrize("theirs, ours, channels, side", CASES)
def test_gradients_are_those_of_pytorch(theirs, ours, channels, side):
    net = network(theirs, channels)
    pixels, labels = torch.randn(8, channels, side, side), torch.randint(0, 10, (8,))
    loss = functional.cross_entropy(net(pixels), labels)
    loss.backward()
    named = dict(net.named_parameters())
    assert [(name, tuple(shape)) for name, shape in network_tensors(ours, channels * side * side, 10)] == [
        (name, tuple(parameter.shape)) for name, parameter in named.items()
    ]
    flat = lambda tensors: torch.cat([tensor.detach().reshape(-1) for tensor in tensors]).numpy()  # noqa: E731
    found, gradient = network_gradient(ours, 10, flat(named.values()), pixels.reshape(-1).numpy(), labels.tolist())
    assert found == pytest.approx(loss.item(), rel=1e-5)
    expected = flat(parameter.grad for parameter in named.values())
    # Both round sums of up to 4608 products of 32-bit numbers, in another order; batch norm on one pixel of 8 rows magnifies that.
    first = 0
    for name, parameter in named.items():
        part = slice(first, first + parameter.numel())
        first = part.stop
        gap = np.linalg.norm(gradient[part] - expected[part])
        assert gap <= 2e-3 * np.linalg.norm(expected[part]) + 1e-6 * np.linalg.norm(expected), name


def test_bad_arguments_are_named():
    zeros = np.zeros(3, np.float32)
    with pytest.raises(ValueError, match="name:"):
        network_tensors("vgg", 3072, 10)
    with pytest.raises(ValueError, match="columns:"):
        network_tensors("lenet", 54, 10)
    with pytest.raises(ValueError, match="parameters:"):
        network_gradient("mlp", 2, zeros, zeros, [0, 1, 1])
    with pytest.raises(ValueError, match="labels:"):
        network_gradient("mlp", 2, zeros, zeros, [0, 5, 1])


def tool():
    """The command line, where it has been built."""
    root = pathlib.Path(os.environ.get("CARGO_TARGET_DIR") or pathlib.Path(__file__).parents[2] / "target")
    built = [root / profile / "corewire" for profile in ("release", "debug")]
    found = [path for path in built if path.exists()]
    return str(max(found, key=os.path.getmtime)) if found else shutil.which("corewire")


@pytest.mark.skipif(tool() is None, reason="the command line has not been built")
def test_a_resnet18_goes_to_torchvision_and_back(tmp_path):
    safetensors = pytest.importorskip("safetensors.torch")
    rows, pixels = 64, np.random.default_rng(0).integers(0, 256, (64, 3, 8, 8))
    lines = (f"{k % 4}," + ",".join(map(str, row.reshape(-1))) for k, row in enumerate(pixels))
    (tmp_path / "rows.csv").write_text("label," + ",".join(f"p{k}" for k in range(192)) + "\n" + "\n".join(lines) + "\n")
    job = ["problem.data=rows.csv", "problem.label=label", "problem.model=resnet18", "machines.count=2", "method.batch=16"]

    def run(*keys):
        sets = [part for key in (*job, *keys) for part in ("--set", key)]
        out = subprocess.run([tool(), "run", "--json", *sets], cwd=tmp_path, capture_output=True, text=True)
        assert out.returncode == 0, out.stderr
        return json.loads(out.stdout)

    sets = [part for key in (*job, "stop.rounds=4") for part in ("--set", key)]
    subprocess.run([tool(), "run", "--out", "run", *sets], cwd=tmp_path, check=True, capture_output=True)
    subprocess.run(
        [tool(), "export", "run/model.safetensors", "--pytorch", "net.safetensors"], cwd=tmp_path, check=True, capture_output=True
    )
    net = network("resnet18", 3, 4)
    net.load_state_dict(safetensors.load_file(tmp_path / "net.safetensors"))
    net.eval()
    said = subprocess.run(
        [tool(), "predict", "rows.csv", "--model", "run/model.safetensors", "--json"], cwd=tmp_path, capture_output=True, text=True
    )
    probabilities = np.array([list(json.loads(line)["probabilities"].values()) for line in said.stdout.splitlines()])
    images = torch.tensor(pixels, dtype=torch.float32)
    scaled = (images - images.mean((0, 2, 3), keepdim=True)) / images.std((0, 2, 3), keepdim=True, correction=0)
    with torch.no_grad():
        expected = functional.softmax(net(scaled), 1).numpy()
    assert probabilities.shape == (rows, 4)
    assert np.abs(probabilities - expected).max() < 1e-3
    # And back: f at a start from torch's tensors is torch's loss with the statistics of each batch, one machine's 64 rows.
    safetensors.save_file(net.state_dict(), tmp_path / "back.safetensors")
    again = run("stop.rounds=0", "problem.start=back.safetensors", "machines.count=1")
    net.train()
    with torch.no_grad():
        labels = torch.arange(rows) % 4
        order = torch.arange(rows)
        loss = functional.cross_entropy(net(scaled[order]), labels[order]).item()
    # 32-bit sums in another order, through eighteen layers.
    assert again["initial"] == pytest.approx(loss, rel=1e-4)
