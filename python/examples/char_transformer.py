"""Trains a character transformer with AdamW under DistributedDataParallel, compressed or not, and says what it sent.

    torchrun --standalone --nproc-per-node 4 examples/char_transformer.py --text ../docs/*.md ../*.md --hook core --ratio 12

The last tenth of the text is held out. `--hook none` is plain DDP with torch's AdamW, `core` is corewire's form of it, `1bit-adam` the peer of
the literature, whose first `--warm-up` steps are uncompressed.
"""

import argparse
import json
import os
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn import functional
from torch.nn.parallel import DistributedDataParallel

from corewire.torch import CoreState, core_hook
from hooks import OneBitAdam, one_bit_adam_hook


class Transformer(nn.Module):
    def __init__(self, characters, width=96, layers=2, heads=4, context=64):
        super().__init__()
        self.context = context
        self.characters, self.places = nn.Embedding(characters, width), nn.Embedding(context, width)
        layer = nn.TransformerEncoderLayer(width, heads, 4 * width, dropout=0.0, batch_first=True, norm_first=True)
        self.layers = nn.TransformerEncoder(layer, layers, enable_nested_tensor=False)
        self.head = nn.Sequential(nn.LayerNorm(width), nn.Linear(width, characters))

    def forward(self, text):
        length = text.shape[1]
        mask = nn.Transformer.generate_square_subsequent_mask(length)
        x = self.characters(text) + self.places(torch.arange(length))
        return self.head(self.layers(x, mask=mask, is_causal=True))


def loss_of(net, text, starts, context):
    rows = torch.stack([text[start : start + context + 1] for start in starts])
    return functional.cross_entropy(net(rows[:, :-1]).flatten(0, 1), rows[:, 1:].flatten())


def texts(paths):
    """How many characters there are, and the text as their numbers: nine tenths to train on, and a tenth held out."""
    whole = "".join(open(path, encoding="utf-8").read() for path in paths)
    alphabet = {character: k for k, character in enumerate(sorted(set(whole)))}
    text = torch.tensor([alphabet[character] for character in whole])
    return len(alphabet), text[: int(0.9 * len(text))], text[int(0.9 * len(text)) :]


def held_out_loss(net, test):
    net.eval()
    with torch.no_grad():
        starts = torch.arange(0, len(test) - net.context - 1, net.context)
        return sum(loss_of(net, test, part, net.context).item() * len(part) for part in starts.split(64)) / len(starts)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--text", nargs="+", required=True)
    parser.add_argument("--hook", choices=["none", "core", "1bit-adam"], default="core")
    parser.add_argument("--ratio", type=float, default=12)
    parser.add_argument("--wire", default="q")
    parser.add_argument("--lr", type=float, default=2e-3)
    parser.add_argument("--end", type=float, default=0.1, help="the share of the rate that is left at the end")
    parser.add_argument("--warm-up", type=int, default=60, help="uncompressed steps of 1bit-adam")
    parser.add_argument("--weight-decay", type=float, default=0.01)
    parser.add_argument("--steps", type=int, default=500)
    parser.add_argument("--batch", type=int, default=8, help="rows per process and step")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", help="appends the result to this file")
    arguments = parser.parse_args()

    dist.init_process_group("gloo")
    rank, machines = dist.get_rank(), dist.get_world_size()
    torch.set_num_threads(max(1, (os.cpu_count() or 1) // machines))
    characters, train, test = texts(arguments.text)

    torch.manual_seed(arguments.seed)
    net = Transformer(characters)
    optimizer = torch.optim.AdamW(net.parameters(), lr=arguments.lr, weight_decay=arguments.weight_decay)
    ddp, state = DistributedDataParallel(net, bucket_cap_mb=1000 if arguments.hook == "1bit-adam" else 25), None
    if arguments.hook == "core":
        state = CoreState(net, arguments.ratio, seed=arguments.seed, wire=arguments.wire)
        ddp.register_comm_hook(state, core_hook)
        optimizer = state.optimizer(optimizer)
    if arguments.hook == "1bit-adam":
        state = OneBitAdam(arguments.warm_up)
        ddp.register_comm_hook(state, one_bit_adam_hook)
        optimizer = torch.optim.SGD(net.parameters(), lr=arguments.lr, weight_decay=arguments.weight_decay)
    schedule = torch.optim.lr_scheduler.LambdaLR(
        optimizer, lambda step: min(1, (step + 1) / 50) * (1 - (1 - arguments.end) * step / arguments.steps)
    )
    random = torch.Generator().manual_seed(1000 * arguments.seed + rank)
    begun = time.perf_counter()
    for _ in range(arguments.steps):
        starts = torch.randint(0, len(train) - net.context - 1, (arguments.batch,), generator=random)
        optimizer.zero_grad()
        loss_of(ddp, train, starts, net.context).backward()
        optimizer.step()
        schedule.step()
    seconds = time.perf_counter() - begun
    held_out = held_out_loss(net, test)
    if rank == 0:
        result = {
            "hook": arguments.hook, "machines": machines, "parameters": sum(p.numel() for p in net.parameters()),
            "characters": len(train) + len(test), "steps": arguments.steps, "lr": arguments.lr, "seed": arguments.seed,
            "held_out_loss": held_out, "seconds_per_step": seconds / arguments.steps,
        }  # fmt: skip
        if arguments.hook == "core":
            result |= {"ratio": arguments.ratio, "wire": arguments.wire, **state.stats().scalars()}
        if arguments.hook == "1bit-adam":
            dense = 8 * (machines - 1) / machines * result["parameters"] * arguments.steps
            result |= {"warm_up": arguments.warm_up, "sent_bytes": state.sent_bytes, "factor": dense / state.sent_bytes}
        print(json.dumps(result), flush=True)
        if arguments.json:
            with open(arguments.json, "a") as file:
                file.write(json.dumps(result) + "\n")
    dist.barrier()
    dist.destroy_process_group()
    os._exit(0)


if __name__ == "__main__":
    main()
