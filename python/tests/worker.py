"""What each process of a distributed test does: `torchrun worker.py SCENARIO FOLDER [key=value ...]`. The answer is FOLDER/RANK.json."""

import hashlib
import json
import os
import pathlib
import sys
import time

import torch
import torch.distributed as dist
from corewire._device import DeviceSketch
from corewire.torch import CoreState, all_reduce_mean, core_hook
from torch.nn.parallel import DistributedDataParallel

torch.set_num_threads(1)
# Some virtual machines announce instructions for bfloat16 that they do not have, and torch believes them.
torch.backends.mkldnn.enabled = False


def model():
    torch.manual_seed(0)
    return torch.nn.Sequential(
        torch.nn.Linear(20, 64), torch.nn.ReLU(), torch.nn.Linear(64, 64), torch.nn.ReLU(), torch.nn.Linear(64, 3)
    )


def batch(step, rank, rows=8):
    random = torch.Generator().manual_seed(1000 * step + rank)
    x = torch.randn(rows, 20, generator=random)
    return x, (x[:, 0] > 0).long() + (x[:, 1] > 1).long()


def digest(net):
    sha = hashlib.sha256()
    for parameter in net.parameters():
        sha.update(parameter.detach().float().numpy().tobytes())
    return sha.hexdigest()


class Run:
    """A small model under DDP with the hook. Buckets are tiny, so that there are several of them."""

    def __init__(self, dtype=torch.float32, optimizer="sgd", view=False, decay=1e-3, **keys):
        self.net = model().to(dtype)
        self.state = CoreState(self.net, seed=7, **{"ratio": 8, **keys})
        if optimizer == "adamw":
            plain = torch.optim.AdamW(self.net.parameters(), lr=0.003)
        else:
            plain = torch.optim.SGD(self.net.parameters(), lr=0.02, momentum=0.9, weight_decay=decay)
        self.optimizer = self.state.optimizer(plain)
        self.ddp = DistributedDataParallel(self.net, bucket_cap_mb=0.004, gradient_as_bucket_view=view)
        self.ddp.register_comm_hook(self.state, core_hook)
        self.dtype = dtype
        self.loss = None

    def steps(self, first, last, accumulate=1):
        rank = dist.get_rank()
        for step in range(first, last):
            for part in range(accumulate - 1):
                with self.ddp.no_sync():
                    self.backward(accumulate * step + part, rank)
            self.backward(accumulate * step + accumulate - 1, rank)
            self.optimizer.step()
            self.optimizer.zero_grad()

    def backward(self, step, rank, scaler=None):
        x, y = batch(step, rank)
        self.loss = torch.nn.functional.cross_entropy(self.ddp(x.to(self.dtype)).float(), y)
        (self.loss if scaler is None else scaler.scale(self.loss)).backward()


def train(folder, steps="50", wire="q", dtype="float32", accumulate="1", vectors="", dense="0", optimizer="sgd", elsewhere=""):
    keys = {"keep_vectors": bool(vectors), "dense_steps": int(dense), "optimizer": optimizer}
    run = Run(wire=wire, dtype=getattr(torch, dtype), **keys)
    if elsewhere:
        # As for tensors on another device; there is none here, and the CPU adds as any other does.
        run.state._elsewhere = DeviceSketch(run.state._sketch, torch.device("cpu"))
    run.steps(0, int(steps), int(accumulate))
    stats = run.state.stats()
    return {"digest": digest(run.net), "loss": run.loss.item(), "factor": stats.factor, **stats.scalars()}


def resume(folder, at="25", steps="50", common="", optimizer="sgd"):
    """Saves at a step, builds everything anew, goes on."""
    run = Run(optimizer=optimizer)
    run.steps(0, int(at))
    saved = {"net": run.net.state_dict(), "core": run.state.state_dict(common=bool(common))}
    path = pathlib.Path(folder) / f"saved-{dist.get_rank()}.pt"
    torch.save(saved, path)
    run.state.close()
    again, saved = Run(optimizer=optimizer), torch.load(path)
    again.net.load_state_dict(saved["net"])
    again.state.load_state_dict(saved["core"])
    again.steps(int(at), int(steps))
    return {"digest": digest(again.net)}


class Slow(torch.autograd.Function):
    """What passes as it is, and takes 30 ms on the way back."""

    @staticmethod
    def forward(context, x):
        return x.clone()

    @staticmethod
    def backward(context, gradient):
        time.sleep(0.03)
        return gradient


def timed(folder, optimizer):
    """What plan() and stats() say of a slow backward pass, and of waiting for a process that is late."""
    run, rank = Run(optimizer=optimizer), dist.get_rank()
    for layer in run.net:
        layer.register_forward_hook(lambda layer, x, out: Slow.apply(out))

    def seconds(late):
        dist.barrier()
        before, begun = run.state.stats(), time.perf_counter()
        for step in range(4):
            time.sleep(late * rank)
            run.steps(step, step + 1)
        stats = run.state.stats()
        named = {name: (getattr(stats, name) - getattr(before, name)) / 4 for name in ("sketch_seconds", "wire_seconds")}
        return {"whole": (time.perf_counter() - begun) / 4, **named}

    seconds(0.0)
    plain = {**seconds(0.0), "planned": run.state.plan(mbit_s=1e6)["step_seconds"]}
    plain |= {"plan": run.state.plan(mbit_s=2), "computed": [seconds for _, seconds in run.state._computed]}
    return {"plain": plain, "late": seconds(0.3)}


def apart(one, other):
    """How far two lists of tensors are apart, at most."""
    return max((a - b).abs().max().item() for a, b in zip(one, other))


def gathered(tensor):
    found = [torch.empty_like(tensor) for _ in range(dist.get_world_size())]
    dist.all_gather(found, tensor)
    return torch.stack(found)


def exact(folder):
    """What has to be so to the last bits, or nearly."""
    rank, loss_of, found = dist.get_rank(), torch.nn.functional.cross_entropy, {}

    # Dense steps are those of plain DDP.
    ours, plain = Run(decay=0.0, dense_steps=1000), DistributedDataParallel(model())
    optimizer = torch.optim.SGD(plain.parameters(), lr=0.02, momentum=0.9)
    for step in range(6):
        ours.steps(step, step + 1)
        x, y = batch(step, rank)
        loss_of(plain(x), y).backward()
        optimizer.step()
        optimizer.zero_grad()
    found["dense"] = apart(ours.net.parameters(), plain.parameters())
    ours.state.close()

    # Two micro-batches are one batch.
    whole, parts = Run(wire="float32"), Run(wire="float32")
    for step in range(4):
        x, y = batch(step, rank)
        loss_of(whole.ddp(x), y).backward()
        with parts.ddp.no_sync():
            (loss_of(parts.ddp(x[:3]), y[:3]) * 3 / 8).backward()
        (loss_of(parts.ddp(x[3:]), y[3:]) * 5 / 8).backward()
        for run in (whole, parts):
            run.optimizer.step()
            run.optimizer.zero_grad()
    found["micro_batches"] = apart(whole.net.parameters(), parts.net.parameters())
    found["micro_batches_moved"] = apart(whole.net.parameters(), model().parameters())

    # Vectors that are kept have the exact mean of the momenta, and matrices an estimate.
    run, momenta = Run(keep_vectors=True), [torch.zeros_like(parameter) for parameter in model().parameters()]
    for step in range(3):
        x, y = batch(step, rank)
        plain = model()
        loss_of(plain(x), y).backward()
        momenta = [0.9 * momentum + gathered(parameter.grad).mean(0) for momentum, parameter in zip(momenta, plain.parameters())]
        run.net.zero_grad()
        run.backward(step, rank)
    pairs = [(parameter.grad, momentum) for parameter, momentum in zip(run.net.parameters(), momenta)]
    found["vectors"], found["matrices"] = (apart(*zip(*(pair for pair in pairs if pair[0].dim() == dim))) for dim in (1, 2))

    # Without DDP numbers stand in the order of the list, whatever is kept.
    state = CoreState([torch.zeros(5), torch.zeros(10, 10), torch.zeros(3)], ratio=8, seed=7, beta=0, keep_vectors=True)
    mean = torch.arange(1.0, 109) * 1.5
    off = (all_reduce_mean(torch.arange(1.0, 109) * (rank + 1), state) - mean).abs()
    found["listed_vectors"], found["listed_matrix"] = max(off[:5].max(), off[105:].max()).item(), off[5:105].max().item()

    # A scale that changes is not felt: it is a power of two.
    scaler = torch.amp.GradScaler("cpu", init_scale=1024.0, growth_interval=2)
    scaled, plain = Run(scaler=scaler), Run()
    for step in range(8):
        scaled.backward(step, rank, scaler)
        scaler.step(scaled.optimizer)
        scaler.update()
        scaled.optimizer.zero_grad()
    plain.steps(0, 8)
    found["scaled"], found["scale"] = digest(scaled.net) == digest(plain.net), scaler.get_scale()

    # What DDP was told to leave out has no momentum.
    net = model()
    DistributedDataParallel._set_params_and_buffers_to_ignore_for_model(net, ["2.weight"])
    state = CoreState(net, ratio=8, seed=7)
    optimizer, ddp = state.optimizer(torch.optim.SGD(net.parameters(), lr=0.02, momentum=0.9)), DistributedDataParallel(net)
    ddp.register_comm_hook(state, core_hook)
    for step in range(3):
        x, y = batch(step, rank)
        loss_of(ddp(x), y).backward()
        optimizer.step()
        optimizer.zero_grad()
    at = state._offsets[id(net[2].weight)]
    found["left_out"] = state._momentum[at : at + net[2].weight.numel()].abs().max().item()
    found["taken"] = state._momentum.abs().max().item()

    # A common checkpoint has the mean of the second moments, and they are there again when it is loaded.
    run, again = Run(optimizer="adamw"), Run(optimizer="adamw")
    run.steps(0, 6)
    saved = run.state.state_dict(common=True)
    again.state.load_state_dict(saved)
    found["second"] = apart([again.state._moments.second], [gathered(run.state._moments.second).mean(0)])
    found["root"] = apart([again.state._moments.inverse_root], [run.state._moments.inverse_root])
    found["largest_second"] = run.state._moments.second.max().item()
    return found


def mixed_up(folder):
    """Every process is given the next one's checkpoint."""
    run, rank = Run(), dist.get_rank()
    run.steps(0, 2)
    saved = [None] * dist.get_world_size()
    dist.all_gather_object(saved, run.state.state_dict())
    run.state.load_state_dict(saved[rank])
    try:
        run.state.load_state_dict(saved[(rank + 1) % len(saved)])
    except ValueError as error:
        return {"error": str(error)}
    return {"error": None}


def tiny(folder, ratio):
    """A model with fewer scalars than processes, over every wire."""
    digests = []
    for wire in ("q", "4bit", "1bit", "int8", "float32"):
        torch.manual_seed(0)
        net = torch.nn.Linear(10, 1)
        state = CoreState(net, ratio=float(ratio), seed=7, wire=wire)
        optimizer = state.optimizer(torch.optim.SGD(net.parameters(), lr=0.001, momentum=0.9))
        ddp = DistributedDataParallel(net)
        ddp.register_comm_hook(state, core_hook)
        for step in range(20):
            optimizer.zero_grad()
            ddp(batch(step, dist.get_rank())[0][:, :10]).square().mean().backward()
            optimizer.step()
        assert state._sketch.budget == 1 and torch.isfinite(net.weight).all(), wire
        digests.append(digest(net))
    return {"digests": digests}


def restore(folder, path):
    """Goes on from another number of processes' common checkpoint."""
    run, saved = Run(), torch.load(path)
    run.net.load_state_dict(saved["net"])
    run.state.load_state_dict(saved["core"])
    run.steps(25, 50)
    return {"digest": digest(run.net), "loss": run.loss.item()}


def not_finite(folder):
    """One process meets a NaN: all of them hear of it and whose it was."""
    run = Run()
    run.steps(0, 3)
    x, y = batch(3, dist.get_rank())
    if dist.get_rank() == 1:
        x[0, 0] = float("nan")
    try:
        torch.nn.functional.cross_entropy(run.ddp(x), y).backward()
    except (FloatingPointError, RuntimeError) as error:
        return {"error": str(error)}
    return {"error": None}


def scaled(folder):
    """A GradScaler: an overflow skips the step on all processes, and the momentum does not feel it or the scale."""
    scaler = torch.amp.GradScaler("cpu", init_scale=1024.0, growth_interval=5)
    run = Run(scaler=scaler)
    before = None
    for step in range(20):
        x, y = batch(step, dist.get_rank())
        loss = torch.nn.functional.cross_entropy(run.ddp(x), y)
        if step == 12 and dist.get_rank() == 0:
            loss = loss * float("inf")
        if step == 12:
            before = digest(run.net)
        scaler.scale(loss).backward()
        scaler.step(run.optimizer)
        scaler.update()
        run.optimizer.zero_grad()
        if step == 12:
            assert digest(run.net) == before, "an overflow must skip the step"
    return {"digest": digest(run.net), "loss": loss.item(), "steps": run.state.step}


def two_momenta(folder):
    """An optimiser that keeps its own momentum is refused at its first step."""
    net = model()
    state = CoreState(net, ratio=8, seed=7)
    ddp = DistributedDataParallel(net)
    ddp.register_comm_hook(state, core_hook)
    errors = []
    for optimizer in (torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9), torch.optim.AdamW(net.parameters())):
        torch.nn.functional.cross_entropy(ddp(batch(0, 0)[0]), batch(0, 0)[1]).backward()
        try:
            optimizer.step()
        except ValueError as error:
            errors.append(str(error))
        optimizer.zero_grad()
    torch.optim.SGD(net.parameters(), lr=0.1).step()
    return {"errors": errors}


def accumulated(folder, how):
    """Backward passes on top of gradients that were exchanged."""
    run, rank = Run(), dist.get_rank()
    run.steps(0, 2)
    try:
        run.backward(2, rank)
        if how == "unsynced":
            with run.ddp.no_sync():
                run.backward(3, rank)
        if how == "kept":
            run.optimizer.step()
        run.backward(4, rank)
    except RuntimeError as error:
        return {"error": str(error)}
    return {"error": None}


def usual(folder, view=""):
    """Loops as people write them: none is refused."""
    rank, scaler = dist.get_rank(), torch.amp.GradScaler("cpu", init_scale=1024.0)
    run = Run(scaler=scaler, view=bool(view))
    for step in range(24):
        way, (x, y) = step % 8, batch(step, rank)
        if way == 0:
            with run.ddp.no_sync():
                run.backward(step, rank, scaler)
        loss = torch.nn.functional.cross_entropy(run.ddp(x), y)
        if way in (1, 2, 3):
            # The forward pass comes before the gradients of the last step go, and that of step 2 was skipped.
            run.optimizer.zero_grad(set_to_none=way != 2)
        scaler.scale(loss * float("inf") if way == 2 else loss).backward()
        run.ddp.eval()
        with torch.no_grad():
            run.ddp(x)
        run.ddp.train()
        if way == 5:
            # A term of every process's own, on top of what was exchanged.
            (1e-3 * run.net[0].weight.square().sum()).backward()
        if way == 6:
            run.net.zero_grad(set_to_none=False)
            continue
        if way == 7:
            run.optimizer.zero_grad()
            run.net(x).sum().backward()
            run.optimizer.zero_grad()
            run.backward(step, rank, scaler)
        scaler.step(run.optimizer)
        scaler.update()
        if way not in (0, 1, 2):
            run.optimizer.zero_grad(set_to_none=way == 4)
    return {"digest": digest(run.net), "steps": run.state.step}


def unhooked(folder, how):
    """Optimisers that step on gradients of this process alone."""
    net = model()
    state = CoreState(net, ratio=8, seed=7)
    optimizer = state.optimizer(torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9))
    ddp = DistributedDataParallel(net)
    if how != "forgotten":
        ddp.register_comm_hook(state, core_hook)
        ddp(batch(0, 0)[0]).sum().backward()
        optimizer.step()
        optimizer.zero_grad()
    (net if how == "inside" else ddp)(batch(0, 0)[0]).sum().backward()
    try:
        optimizer.step()
    except RuntimeError as error:
        return {"error": str(error)}

    def closure():
        optimizer.zero_grad()
        loss = ddp(batch(0, 0)[0]).sum()
        loss.backward()
        return loss

    optimizer.step(closure)
    return {"error": None}


def mean(folder):
    """Without DDP: the mean over calls of the estimate is the mean over processes."""
    vector = torch.arange(100.0) * (dist.get_rank() + 1)
    exact = torch.arange(100.0) * sum(range(1, dist.get_world_size() + 1)) / dist.get_world_size()
    state = CoreState([vector.requires_grad_()], ratio=2, beta=0, seed=3)
    vector = vector.detach()
    total = torch.zeros(100)
    for _ in range(400):
        total += all_reduce_mean(vector.clone(), state)
    return {"error": ((total / 400 - exact).norm() / exact.norm()).item()}


def growth(folder):
    """What steps send while the momentum of independent gradients grows, and when it has grown."""
    state = CoreState([torch.zeros(60_000, requires_grad=True)], ratio=12, beta=0.9, seed=3)
    random, sent = torch.Generator().manual_seed(dist.get_rank()), []
    for _ in range(60):
        before = state.stats().sent_bytes
        all_reduce_mean(torch.randn(60_000, generator=random), state)
        sent.append(state.stats().sent_bytes - before)
    return {"first": sum(sent[1:9]) / 8, "later": sum(sent[-20:]) / 20}


def unused(folder):
    """Frozen parameters are not sent, and a branch that was not used has a gradient of 0."""

    class Branches(torch.nn.Module):
        def __init__(self):
            super().__init__()
            torch.manual_seed(0)
            self.frozen = torch.nn.Linear(20, 20).requires_grad_(False)
            self.left, self.right = torch.nn.Linear(20, 3), torch.nn.Linear(20, 3)

        def forward(self, x, left):
            return (self.left if left else self.right)(self.frozen(x))

    net = Branches()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.02, momentum=0.9)
    state = CoreState(net, ratio=4, seed=7)
    state.optimizer(optimizer)
    ddp = DistributedDataParallel(net, find_unused_parameters=True)
    ddp.register_comm_hook(state, core_hook)
    for step in range(10):
        x, y = batch(step, dist.get_rank())
        torch.nn.functional.cross_entropy(ddp(x, step % 2 == 0), y).backward()
        optimizer.step()
        optimizer.zero_grad()
    return {"digest": digest(net), "size": state._size}


def differ(folder, key):
    """Process 1 has another value of something that must be common."""
    values = {"seed": 8, "wire": "float32", "ratio": 9, "beta": 0.5, "eta": 0.3, "keep_vectors": True}
    net = model()
    state = CoreState(net, **{"seed": 7, "ratio": 8, **({key: values[key]} if dist.get_rank() == 1 else {})})
    ddp = DistributedDataParallel(net)
    ddp.register_comm_hook(state, core_hook)
    try:
        torch.nn.functional.cross_entropy(ddp(batch(0, 0)[0]), batch(0, 0)[1]).backward()
    except (ValueError, RuntimeError) as error:
        return {"error": str(error)}
    return {"error": None}


def clipped(folder):
    """Clipping after the backward pass clips the update, alike on all processes."""
    run = Run()
    for step in range(20):
        run.backward(step, dist.get_rank())
        norm = torch.nn.utils.clip_grad_norm_(run.net.parameters(), 1.0)
        run.optimizer.step()
        run.optimizer.zero_grad()
    return {"digest": digest(run.net), "norm": norm.item()}


def die(folder):
    """One process is gone in the middle: the others must end with an error and not wait for ever."""
    run = Run()
    run.steps(0, 3)
    if dist.get_rank() == 1:
        os._exit(9)
    try:
        run.steps(3, 6)
    except Exception as error:
        return {"error": str(error)}
    return {"error": None}


def main():
    scenario, folder, *keys = sys.argv[1:]
    dist.init_process_group("gloo")
    answer = globals()[scenario](folder, **dict(key.split("=", 1) for key in keys))
    (pathlib.Path(folder) / f"{dist.get_rank()}.json").write_text(json.dumps(answer))
    if scenario not in ("die", "not_finite", "differ", "accumulated"):
        dist.barrier()
        dist.destroy_process_group()
    os._exit(0)


main()
