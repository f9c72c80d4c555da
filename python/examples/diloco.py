"""Local steps, and now and then an outer step on the mean of what they changed (DiLoCo, Douillard and others 2023), compressed or not.

    torchrun --standalone --nproc-per-node 4 examples/diloco.py --text ../docs/*.md ../*.md --inner 20 --ratio 12

Each process takes `--inner` steps of AdamW on its own. What they moved the parameters by is a vector like any other: `all_reduce_mean`
overwrites it with the common estimate of its mean momentum, and all processes go on from the same parameters. `--ratio 0` sends it as it is.
The two savings multiply: 20 times fewer exchanges, each a few hundred times smaller.
"""

import argparse
import json
import os

import torch
import torch.distributed as dist
from char_transformer import Transformer, held_out_loss, loss_of, texts
from torch.nn.utils import parameters_to_vector, vector_to_parameters

from corewire.torch import CoreState, all_reduce_mean


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--text", nargs="+", required=True)
    parser.add_argument("--inner", type=int, default=20, help="local steps between outer ones")
    parser.add_argument("--outer", type=int, default=15, help="outer steps")
    parser.add_argument("--ratio", type=float, default=12, help="0 sends all numbers")
    parser.add_argument("--lr", type=float, default=2e-3)
    parser.add_argument("--outer-lr", type=float, default=0.5)
    parser.add_argument("--outer-momentum", type=float, default=0.5)
    parser.add_argument("--batch", type=int, default=8, help="rows per process and step")
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()

    dist.init_process_group("gloo")
    rank, machines = dist.get_rank(), dist.get_world_size()
    torch.set_num_threads(max(1, (os.cpu_count() or 1) // machines))
    characters, train, test = texts(arguments.text)

    torch.manual_seed(arguments.seed)
    net = Transformer(characters)
    optimizer = torch.optim.AdamW(net.parameters(), lr=arguments.lr)
    common = parameters_to_vector(net.parameters()).detach().clone()
    momentum, sent = torch.zeros_like(common), 0
    state = CoreState([torch.nn.Parameter(common)], arguments.ratio, arguments.outer_momentum, arguments.seed) if arguments.ratio else None
    random = torch.Generator().manual_seed(1000 * arguments.seed + rank)
    for _ in range(arguments.outer):
        for _ in range(arguments.inner):
            starts = torch.randint(0, len(train) - net.context - 1, (arguments.batch,), generator=random)
            optimizer.zero_grad()
            loss_of(net, train, starts, net.context).backward()
            optimizer.step()
        moved = common - parameters_to_vector(net.parameters()).detach()
        if state is not None:
            momentum = all_reduce_mean(moved, state)
        else:
            dist.all_reduce(moved)
            momentum = arguments.outer_momentum * momentum + moved / machines
            sent += 8 * (machines - 1) / machines * len(moved)
        common -= arguments.outer_lr * momentum
        vector_to_parameters(common, net.parameters())
    held_out = held_out_loss(net, test)
    if rank == 0:
        steps = arguments.outer * arguments.inner
        bytes_per_step = (state.stats().sent_bytes if state is not None else sent) / steps
        result = {"machines": machines, "parameters": len(common), "steps": steps, "held_out_loss": held_out}
        dense = 8 * (machines - 1) / machines * len(common)
        result |= {"ratio": arguments.ratio, "bytes_per_step": bytes_per_step, "fewer_than_ddp": dense / bytes_per_step}
        print(json.dumps(result), flush=True)
    dist.barrier()
    dist.destroy_process_group()
    os._exit(0)


if __name__ == "__main__":
    main()
