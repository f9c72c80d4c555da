"""Trains an image classifier under DistributedDataParallel with any of several communication hooks, and says what each sent.

    torchrun --standalone --nproc-per-node 2 examples/ddp_resnet18.py --hook core --data random --steps 5
    torchrun --standalone --nproc-per-node 4 examples/ddp_resnet18.py --net lenet --data mnist:FOLDER --epochs 4 --hook core

Data is `random`, `mnist:FOLDER` (the four IDX files, gzipped) or `images:FOLDER` (one folder of pictures for each class, as CIFAR-10 is
often given). Hooks: none (plain DDP), bf16, core (with --ratio and --wire), core-gradient, which sketches the gradient and leaves the momentum
to the optimiser, to see what that costs, powersgd (with --rank), topk and eden (with --ratio) and qsgd, each on the gradient or, with
--on momentum, on the momentum, and silent, which sends nothing, to see what the others' exchanges take.

With --device cuda each process has the GPU of its number on the machine, and gradients go through NCCL where a hook does not send by itself.
No GPU was at hand to try it on.
"""

import argparse
import gzip
import json
import os
import pathlib
import statistics
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks, powerSGD_hook
from torch.nn import functional
from torch.nn.parallel import DistributedDataParallel

from corewire.torch import CoreState, core_hook
from hooks import CODES, Gathered, gathered_hook


def norm(channels):
    return nn.GroupNorm(min(8, channels), channels)


class Residual(nn.Module):
    def __init__(self, into, out, stride):
        super().__init__()
        self.first = nn.Sequential(nn.Conv2d(into, out, 3, stride, 1, bias=False), norm(out), nn.ReLU())
        self.second = nn.Sequential(nn.Conv2d(out, out, 3, 1, 1, bias=False), norm(out))
        self.short = nn.Conv2d(into, out, 1, stride, bias=False) if stride > 1 or into != out else nn.Identity()

    def forward(self, x):
        return functional.relu(self.second(self.first(x)) + self.short(x))


def network(name, channels, classes):
    if name == "lenet":
        return nn.Sequential(
            nn.Conv2d(channels, 16, 5, padding=2), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(16, 32, 5), nn.ReLU(), nn.MaxPool2d(2),
            nn.Flatten(), nn.LazyLinear(120), nn.ReLU(), nn.Linear(120, classes),
        )  # fmt: skip
    if name == "small":
        return nn.Sequential(
            nn.Conv2d(channels, 24, 3, padding=1, bias=False), norm(24), nn.ReLU(), Residual(24, 24, 1), Residual(24, 48, 2),
            Residual(48, 96, 2), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(96, classes),
        )  # fmt: skip
    import torchvision

    net = torchvision.models.resnet18(num_classes=classes)
    net.conv1 = nn.Conv2d(channels, 64, 3, padding=1, bias=False)
    net.maxpool = nn.Identity()
    return net


def idx(path):
    with gzip.open(path) as file:
        data = file.read()
    sizes = [int.from_bytes(data[4 + 4 * k : 8 + 4 * k], "big") for k in range(data[3])]
    return torch.frombuffer(bytearray(data[4 + 4 * len(sizes) :]), dtype=torch.uint8).view(sizes)


def pictures(folder, limit):
    from torchvision.io import decode_image

    images, labels = [], []
    classes = sorted(path for path in pathlib.Path(folder).iterdir() if path.is_dir())
    for label, each in enumerate(classes):
        for path in sorted(each.iterdir())[: limit // len(classes)]:
            images.append(decode_image(str(path)))
            labels.append(label)
    # Rows that are kept back are the last ones, and must be of all classes.
    order = torch.randperm(len(images), generator=torch.Generator().manual_seed(0))
    return torch.stack(images)[order], torch.tensor(labels)[order]


def data(source, rows, test_rows):
    """Training and test images as bytes, with labels."""
    kind, _, folder = source.partition(":")
    if kind == "random":
        random = torch.Generator().manual_seed(0)
        images = torch.randint(0, 256, (rows, 3, 32, 32), generator=random, dtype=torch.uint8)
        labels = torch.randint(0, 10, (rows,), generator=random)
        return images, labels, images[:64], labels[:64]
    root = pathlib.Path(folder)
    if kind == "mnist":
        sets = [idx(root / f"{part}.gz") for part in (
            "train-images-idx3-ubyte", "train-labels-idx1-ubyte", "t10k-images-idx3-ubyte", "t10k-labels-idx1-ubyte"
        )]  # fmt: skip
        return sets[0][:rows, None], sets[1][:rows].long(), sets[2][:test_rows, None], sets[3][:test_rows].long()
    return *pictures(root / "train", rows), *pictures(root / "test", test_rows)


def augmented(images, random):
    """Random crops after a padding by four, and flips."""
    padded = functional.pad(images, (4, 4, 4, 4))
    top, left = torch.randint(0, 9, (2, len(images)), generator=random)
    side = images.shape[-1]
    rows, columns = torch.arange(side), torch.arange(side)
    crops = padded[torch.arange(len(images))[:, None, None, None], torch.arange(images.shape[1])[None, :, None, None],
                   (top[:, None] + rows)[:, None, :, None], (left[:, None] + columns)[:, None, None, :]]  # fmt: skip
    flips = torch.rand(len(images), generator=random) < 0.5
    return torch.where(flips[:, None, None, None], crops.flip(-1), crops)


def register(ddp, net, optimizer, arguments):
    """Registers the hook; the state, where it counts its own bytes."""
    if arguments.hook in ("core", "core-gradient"):
        beta = 0.9 if arguments.hook == "core" else 0.0
        state = CoreState(net, arguments.ratio, beta, arguments.seed, arguments.wire)
        if arguments.hook == "core":
            state.optimizer(optimizer)
        else:
            state.close()
        ddp.register_comm_hook(state, core_hook)
        return state
    if arguments.hook in CODES:
        moved = arguments.on == "momentum"
        if moved:
            optimizer.param_groups[0]["momentum"] = 0
        state = Gathered(arguments.hook, arguments.ratio, 0.9 if moved else 0.0, arguments.seed)
        ddp.register_comm_hook(state, gathered_hook)
        return state
    if arguments.hook == "silent":
        ddp.register_comm_hook(None, silent_hook)
    if arguments.hook == "bf16":
        ddp.register_comm_hook(None, default_hooks.bf16_compress_hook)
    if arguments.hook == "powersgd":
        # From the second step on, and every matrix: what the others do too.
        state = powerSGD_hook.PowerSGDState(
            None, matrix_approximation_rank=arguments.rank, start_powerSGD_iter=2, min_compression_rate=1
        )
        if arguments.on == "momentum":
            optimizer.param_groups[0]["momentum"] = 0
            ddp.register_comm_hook([state, None], powersgd_on_momentum)
        else:
            ddp.register_comm_hook(state, powerSGD_hook.powerSGD_hook)
        return state
    return None


def ring(machines, numbers):
    """The bytes that a process sends where so many 32-bit numbers are summed around a ring."""
    return 8 * (machines - 1) / machines * numbers


def sent_by(state, parameters, machines):
    """The bytes that a process has sent, where its hook counts them."""
    if isinstance(state, CoreState):
        return state.stats().sent_bytes
    if isinstance(state, powerSGD_hook.PowerSGDState):
        # torch counts the numbers of compressed steps alone.
        whole = min(state.iter, state.start_powerSGD_iter)
        return ring(machines, whole * parameters + state.total_numel_after_compression)
    return getattr(state, "sent_bytes", 0)


def sent_on_interfaces():
    """What all network interfaces of this machine, or of this network namespace, have sent."""
    counters = pathlib.Path("/sys/class/net").glob("*/statistics/tx_bytes")
    return sum(int(counter.read_text()) for counter in counters)


@torch.no_grad()
def accuracy(net, images, labels):
    """The share of images that the network gets right; each process looks at its part of them."""
    rank, machines = dist.get_rank(), dist.get_world_size()
    device = next(net.parameters()).device
    net.eval()
    parts = zip(images[rank::machines].split(250), labels[rank::machines].split(250))
    right = torch.tensor(sum((net(x.to(device)).argmax(1).cpu() == y).sum().item() for x, y in parts))
    net.train()
    dist.all_reduce(right)
    return right.item() / len(images)


def silent_hook(_, bucket: dist.GradBucket) -> torch.futures.Future[torch.Tensor]:
    """Sends nothing: what a step takes without its exchange."""
    future = torch.futures.Future()
    future.set_result(bucket.buffer())
    return future


def powersgd_on_momentum(kept, bucket: dist.GradBucket) -> torch.futures.Future[torch.Tensor]:
    """PowerSGD of each process's momentum, whose estimate is the update. There is one bucket."""
    (state, momentum), gradient = kept, bucket.buffer()
    kept[1] = gradient.clone() if momentum is None else momentum.mul_(0.9).add_(gradient)
    gradient.copy_(kept[1])
    return powerSGD_hook.powerSGD_hook(state, bucket)


def scheduled(optimizer, steps, arguments):
    if arguments.cosine is not None:
        return torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, steps, arguments.cosine)
    return torch.optim.lr_scheduler.OneCycleLR(optimizer, arguments.lr, total_steps=steps, pct_start=0.15, cycle_momentum=False)


def board(folder):
    """TensorBoard's writer, where a folder is given."""
    if folder is None:
        return None
    from torch.utils.tensorboard import SummaryWriter

    return SummaryWriter(folder)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--hook", choices=["none", "bf16", "powersgd", "core", "core-gradient", *CODES, "silent"], default="core")
    parser.add_argument("--on", choices=["gradient", "momentum"], default="gradient", help="what powersgd, topk, qsgd and eden send")
    parser.add_argument("--net", choices=["resnet18", "small", "lenet"], default="resnet18")
    parser.add_argument("--data", default="random")
    parser.add_argument("--rows", type=int, default=12_000)
    parser.add_argument("--test-rows", type=int, default=10_000)
    parser.add_argument("--held-out", type=int, default=0, help="scores on so many training rows kept back, not on the test set")
    parser.add_argument("--epochs", type=int, default=1)
    parser.add_argument("--steps", type=int, help="ends after so many steps, whatever the epochs")
    parser.add_argument("--warm-up", type=int, default=0, help="so many first steps are left out of seconds and bytes")
    parser.add_argument("--batch", type=int, default=32, help="rows per process and step")
    parser.add_argument("--lr", type=float, default=0.05)
    parser.add_argument("--cosine", type=float, metavar="LR", help="the rate falls to this one by a cosine, without a warm-up")
    parser.add_argument("--weight-decay", type=float, default=5e-4)
    parser.add_argument("--ratio", type=float, default=12)
    parser.add_argument("--wire", default="q")
    parser.add_argument("--rank", type=int, default=4)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--threads", type=int, default=0, help="threads per process; 0 shares the cores")
    parser.add_argument("--history", type=int, default=0, help="scores so many test rows after every epoch")
    parser.add_argument("--tensorboard", metavar="FOLDER", help="writes loss and the hook's statistics there (needs tensorboard)")
    parser.add_argument("--json", help="appends the result to this file")
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cpu", help="cuda: a GPU for each process (not tried on a GPU)")
    arguments = parser.parse_args()
    if arguments.device == "cuda" and arguments.hook in CODES:
        parser.error(f"--device: the hook {arguments.hook} is on the CPU alone")

    device = torch.device("cpu")
    if arguments.device == "cuda":
        device = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
        torch.cuda.set_device(device)
    # The hook's messages are on the CPU whatever the gradients are on.
    dist.init_process_group("gloo" if arguments.device == "cpu" else "cpu:gloo,cuda:nccl")
    rank, machines = dist.get_rank(), dist.get_world_size()
    torch.set_num_threads(arguments.threads or max(1, (os.cpu_count() or 1) // machines))
    images, labels, test_images, test_labels = data(arguments.data, arguments.rows, arguments.test_rows)
    if arguments.held_out:
        images, test_images = images[: -arguments.held_out], images[-arguments.held_out :]
        labels, test_labels = labels[: -arguments.held_out], labels[-arguments.held_out :]
    mean = images.float().mean((0, 2, 3), keepdim=True)
    deviation = images.float().std((0, 2, 3), keepdim=True)
    scaled = lambda batch: (batch.float() - mean) / deviation  # noqa: E731

    torch.manual_seed(arguments.seed)
    net = network(arguments.net, images.shape[1], int(labels.max()) + 1)
    net(scaled(test_images[:2]))
    net.to(device)
    optimizer = torch.optim.SGD(net.parameters(), lr=arguments.lr, momentum=0.9, weight_decay=arguments.weight_decay)
    # torch's PowerSGD starts its second exchange from a callback: on gloo, buckets then meet the wrong ones. One bucket has no such trouble,
    # and our baselines keep one memory.
    ddp = DistributedDataParallel(net, bucket_cap_mb=1000 if arguments.hook in ("powersgd", *CODES) else 25)
    state = register(ddp, net, optimizer, arguments)
    per_epoch = len(images) // (arguments.batch * machines)
    steps = arguments.steps or arguments.epochs * per_epoch
    schedule = scheduled(optimizer, steps, arguments)
    writer = board(arguments.tensorboard if rank == 0 else None)
    random, own = torch.Generator().manual_seed(arguments.seed), torch.Generator().manual_seed(1 + rank)
    flips = arguments.data.startswith("images")
    parameters = sum(parameter.numel() for parameter in net.parameters())
    counted = lambda: sent_by(state, parameters, machines)  # noqa: E731
    loss_sum, history, times = 0.0, [], []
    for step in range(steps):
        if step == arguments.warm_up:
            dist.barrier()
            begun, before, counted_before = time.perf_counter(), sent_on_interfaces(), counted()
        if step % per_epoch == 0:
            order, loss_sum = torch.randperm(len(images), generator=random), 0.0
        step_begun = time.perf_counter()
        first = (step % per_epoch) * arguments.batch * machines + rank * arguments.batch
        rows = order[first : first + arguments.batch]
        batch = augmented(scaled(images[rows]), own) if flips else scaled(images[rows])
        # Convolutions of few channels take a sixth less time on a CPU where a pixel's channels lie side by side.
        batch = batch.contiguous(memory_format=torch.channels_last).to(device)
        loss = functional.cross_entropy(ddp(batch), labels[rows].to(device))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        schedule.step()
        loss_sum += loss.item()
        times.append(time.perf_counter() - step_begun)
        if writer is not None:
            writer.add_scalar("loss", loss.item(), step)
            for name, value in (state.stats().scalars() if isinstance(state, CoreState) else {}).items():
                writer.add_scalar(f"corewire/{name}", value, step)
        if arguments.history and (step + 1) % per_epoch == 0:
            every = max(1, len(test_images) // arguments.history)
            score = accuracy(net, scaled(test_images[::every]), test_labels[::every])
            sent = counted() - counted_before or (sent_on_interfaces() - before) / machines
            history.append({"loss": loss_sum / per_epoch, "accuracy": score, "sent_bytes": sent})
    dist.barrier()
    seconds, passed = time.perf_counter() - begun, sent_on_interfaces() - before
    score = accuracy(net, scaled(test_images), test_labels)
    if rank == 0:
        dense, measured = ring(machines, parameters), steps - arguments.warm_up
        result = {
            "hook": arguments.hook, "net": arguments.net, "machines": machines, "parameters": parameters, "steps": steps,
            "lr": arguments.lr, "seed": arguments.seed, "loss": loss_sum / (1 + (steps - 1) % per_epoch),
            "accuracy": score, "seconds_per_step": seconds / measured,
            "median_seconds": statistics.median(times[arguments.warm_up :]), "interface_bytes_per_step": passed / measured,
            "counted_bytes_per_step": (counted() - counted_before) / measured, "dense_bytes_per_step": dense,
        }  # fmt: skip
        if isinstance(state, CoreState):
            result |= {"ratio": arguments.ratio, "wire": arguments.wire, **state.stats().scalars()}
        if arguments.hook in CODES:
            result |= {"ratio": arguments.ratio, "on": arguments.on}
        if history:
            result["history"] = history
        if arguments.hook == "powersgd":
            result |= {"rank": arguments.rank, "on": arguments.on}
        print(json.dumps(result), flush=True)
        if arguments.json:
            with open(arguments.json, "a") as file:
                file.write(json.dumps(result) + "\n")
    if writer is not None:
        writer.close()
    dist.barrier()
    dist.destroy_process_group()
    os._exit(0)


if __name__ == "__main__":
    main()
