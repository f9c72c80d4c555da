"""The baselines of the example: what they say is right, and a run with one of them ends and counts its bytes."""

import json
import os
import pathlib
import subprocess
import sys

import pytest
import torch
import torch.distributed as dist

EXAMPLES = pathlib.Path(__file__).parents[1] / "examples"
sys.path.insert(0, str(EXAMPLES))
from hooks import CODES, Gathered, OneBitAdam, Signs  # noqa: E402


@pytest.fixture
def alone(tmp_path):
    dist.init_process_group("gloo", init_method=f"file://{tmp_path}/store", rank=0, world_size=1)
    yield
    dist.destroy_process_group()


@pytest.mark.parametrize("name, bytes_of_1000", [("qsgd", 4 * 2 + 256), ("eden", 4 + 125), ("topk", 8 * 100)])
def test_a_code_says_what_it_should(alone, name, bytes_of_1000):
    vector = torch.randn(1000, generator=torch.Generator().manual_seed(1))
    code = CODES[name](1000, 10 if name == "topk" else 1, 3)
    assert len(code.encode(vector, 1)) == bytes_of_1000
    if name == "topk":
        kept = code.decode(code.encode(vector, 1), 1, 0)
        assert torch.equal(kept[kept != 0], vector[kept != 0]) and kept.abs().gt(0).sum() == 100
        assert vector[kept == 0].abs().max() <= kept[kept != 0].abs().min()
        return
    draws, mean = 2000, torch.zeros(1000)
    errors = []
    for step in range(draws):
        decoded = code.decode(code.encode(vector, step), step, 0)
        errors.append(((decoded - vector) ** 2).sum().item())
        mean += decoded / draws
    # Unbiased: the mean's squared error is that of one draw over their number. It is a sum over 1000 coordinates, so within a fifth.
    expected = sum(errors) / draws / draws
    assert ((mean - vector) ** 2).sum().item() < 1.2 * expected


def test_what_is_left_out_comes_later(alone):
    state = Gathered("topk", 10, 0.0, 1)
    gradient = torch.arange(1.0, 101.0)
    sums = torch.zeros(100)
    state.mean(gradient.clone())
    for _ in range(200):
        sums += state.mean(gradient.clone())
    # Nothing is lost, and what is held back stays small: ten entries beyond a tenth of a gradient's sum would be more than comes in.
    assert torch.equal(200 * gradient - sums, state.error)
    assert state.error.max() < 2 * gradient.sum() / 10


def test_signs_lose_nothing_for_ever(alone):
    signs, vector, sums = Signs(100), torch.randn(100, generator=torch.Generator().manual_seed(1)), torch.zeros(100)
    for _ in range(300):
        mean, sent = signs.mean(vector)
        sums += mean
    # What two roundings have left out so far is all that lacks.
    left = (signs.own_error + signs.hub_error).view(-1)[:100]
    assert torch.allclose(300 * vector - sums, left, atol=1e-3) and sent == 0
    assert (sums / 300 - vector).norm() < 0.1 * vector.norm()


def test_one_bit_adam_warms_up_as_adam(alone):
    random, parameter = torch.Generator().manual_seed(1), torch.nn.Parameter(torch.zeros(50))
    adam, ours, state = torch.optim.Adam([parameter], lr=0.1), torch.zeros(50), OneBitAdam(warm_up=20)
    # Its first step is a plain one, and counts for nothing later.
    state.update(torch.randn(50, generator=random))
    for step in range(40):
        parameter.grad = torch.randn(50, generator=random) + 1
        ours -= 0.1 * state.update(parameter.grad.clone())
        adam.step()
        if step < 19:
            assert torch.allclose(ours, parameter.detach(), atol=1e-5)
    # From there on it is on its own, and still goes where the gradients point.
    assert not torch.allclose(ours, parameter.detach(), atol=1e-5) and ours.mean() < -2


def example(name, *arguments):
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2", str(EXAMPLES / name)]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "RAYON_NUM_THREADS": "1"}
    done = subprocess.run([*command, *arguments], env=environment, timeout=180, capture_output=True, text=True)
    lines = [line for line in done.stdout.splitlines() if line.startswith("{")]
    assert len(lines) == 1, done.stdout + done.stderr
    return json.loads(lines[0])


def test_a_run_with_a_baseline_counts_its_bytes():
    arguments = "--net lenet --data random --rows 256 --steps 3 --hook eden --ratio 12 --on momentum"
    found = example("ddp_resnet18.py", *arguments.split())
    scalars = round(found["parameters"] / 12)
    # Two of three steps: a bit for each scalar, and a scale.
    assert found["counted_bytes_per_step"] == pytest.approx(2 / 3 * (4 + -(-scalars // 8)))


def test_tensorboard_has_the_scalars(tmp_path):
    pytest.importorskip("tensorboard", reason="tensorboard is not installed")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    arguments = f"--net lenet --data random --rows 256 --steps 3 --tensorboard {tmp_path}"
    found = example("ddp_resnet18.py", *arguments.split())
    events = EventAccumulator(str(tmp_path)).Reload()
    sent = [event.value for event in events.Scalars("corewire/sent_bytes")]
    assert len(events.Scalars("loss")) == len(sent) == 3 and sent[-1] == pytest.approx(3 * found["counted_bytes_per_step"])


def test_an_outer_step_goes_where_the_uncompressed_one_goes():
    text = str(EXAMPLES.parents[1] / "docs" / "pytorch.md")
    common = ["--text", text, "--inner", "10", "--outer", "6"]
    sketched, plain = example("diloco.py", *common), example("diloco.py", *common, "--ratio", "0")
    # ln 90 = 4.5 at the start, for some 90 characters; three quarters of the way is where six outer steps get.
    assert plain["held_out_loss"] < 3.6 and sketched["held_out_loss"] < plain["held_out_loss"] + 0.2, (plain, sketched)
    assert sketched["fewer_than_ddp"] > 10 * 200
