#!/usr/bin/env python3
"""What the hook of one of two processes computes in a step, in nanoseconds per parameter, part by part.

    experiments/ddp_hook.py --python .venv/bin/python

One process plays both: the other one's messages are made while the clock stands, and nothing is sent. Parameters are those of torchvision's
ResNet-18 in buckets of 25 MB, as DDP cuts them. The figures are those of the quickest of some steps, so that others on the machine do not
count; the least time of a plain copy of the vector stands beside them. On a busy machine, `--cpu` tells what the threads together computed
instead of the time that passed.
"""

import argparse
import json
import os
import subprocess
import sys
import time

WIRES = [("q", 12), ("4bit", 37), ("1bit", 12)]
PARTS = ("momentum", "project", "split", "combine", "join", "reconstruct", "fill", "the rest", "whole hook", "copy")


def measure(wire, ratio, steps, now):
    """Nanoseconds per parameter of each part."""
    import torch
    import torchvision

    import corewire.torch as module

    torch.set_num_threads(int(os.environ["OMP_NUM_THREADS"]))
    spent = {}

    def timed(name, function):
        def call(*arguments):
            begun = now()
            answer = function(*arguments)
            spent[name] = spent.get(name, 0) + now() - begun
            return answer

        return call

    class Bucket:
        """What of torch's GradBucket the hook looks at."""

        def __init__(self, parameters, last):
            self._parameters, self._last = parameters, last
            self._buffer = torch.empty(sum(parameter.numel() for parameter in parameters))

        buffer = lambda self: self._buffer  # noqa: E731
        parameters = lambda self: self._parameters  # noqa: E731
        is_last = lambda self: self._last  # noqa: E731
        gradients = lambda self: self._buffer.split([parameter.numel() for parameter in self._parameters])  # noqa: E731

    class Wire:
        """The native wire with the clock on it; what the other process would say is made while the clock stands."""

        def __init__(self, native):
            self.native, self.join = native, timed("join", native.join)
            self.timed_split, self.timed_combine = timed("split", native.split), timed("combine", native.combine)

        def split(self, step, _, scalars, quantum):
            self.own = self.timed_split(step, 0, scalars, quantum)
            self.others = timed("stands", self.native.split)(step, 1, scalars, quantum)
            return self.own

        def combine(self, step, _, messages, *quanta):
            own = self.timed_combine(step, 0, messages, *quanta)
            self.reply = timed("stands", self.native.combine)(step, 1, [self.own[1], self.others[1]], *quanta)
            return own

    class Pair(module.CoreState):
        """Process 0 of two."""

        def _machines(self):
            return 2

        def _agree(self, machines):
            self._agreed = machines

        def _not_finite(self, finite, rank, machines):
            return [] if finite else [rank]

        def _all_to_all(self, messages, machines):
            return [messages[0], self._wires[2].others[0]]

        def _all_gather(self, message, machines):
            return [message, self._wires[2].reply]

    parameters = list(torchvision.models.resnet18(num_classes=10).parameters())
    size = sum(parameter.numel() for parameter in parameters)
    state = Pair(parameters, ratio, seed=1, wire=wire)
    state.close()
    state._wires[2] = Wire(module.MeanWire(1, len(state._scalars), 2, wire))
    # As after many steps whose gradients have a variance of 1.
    state._momentum.normal_().div_((1 - state.beta**2) ** 0.5)
    state._scale_squared = float(torch.from_numpy(state._sketch.project(0, state._momentum.numpy())).square().mean())

    class TimedSketch:
        project = staticmethod(timed("project", state._sketch.project))
        reconstruct = staticmethod(timed("reconstruct", state._sketch.reconstruct))

    state._sketch = TimedSketch
    module.fold_momentum, module.fill_bucket = timed("momentum", module.fold_momentum), timed("fill", module.fill_bucket)

    # From the last parameter on, as gradients become ready.
    groups, filled = [[]], 0
    for parameter in reversed(parameters):
        if filled > 25 << 20:
            groups.append([])
            filled = 0
        groups[-1].append(parameter)
        filled += 4 * parameter.numel()
    buckets = [Bucket(group, group is groups[-1]) for group in groups]
    found, one, other = [], torch.randn(size), torch.empty(size)
    for _ in range(steps):
        for bucket in buckets:
            bucket.buffer().normal_()
        spent.clear()
        begun = now()
        for bucket in buckets:
            state._take(bucket)
        whole = now() - begun - spent.pop("stands")
        parts = {**spent, "the rest": whole - sum(spent.values()), "whole hook": whole}
        begun = now()
        other.copy_(one)
        parts["copy"] = now() - begun
        found.append(parts)
    quickest = min(found, key=lambda parts: parts["whole hook"]) | {"copy": min(parts["copy"] for parts in found)}
    return {part: quickest[part] * 1e9 / size for part in PARTS}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--python", default=sys.executable)
    parser.add_argument("--steps", type=int, default=30)
    parser.add_argument("--threads", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--cpu", action="store_true")
    parser.add_argument("--measure", nargs=2, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.measure:
        now = time.process_time if given.cpu else time.perf_counter
        print(json.dumps(measure(given.measure[0], float(given.measure[1]), given.steps, now)))
        return
    print("| wire | ratio | threads | " + " | ".join(PARTS) + " |")
    print("| --- | ---: | ---: |" + " ---: |" * len(PARTS))
    for wire, ratio in WIRES:
        for threads in given.threads:
            environment = {**os.environ, "OMP_NUM_THREADS": str(threads), "RAYON_NUM_THREADS": str(threads)}
            command = [given.python, __file__, "--measure", wire, str(ratio), "--steps", str(given.steps), *["--cpu"] * given.cpu]
            answer = json.loads(subprocess.run(command, env=environment, check=True, capture_output=True, text=True).stdout)
            print(f"| `{wire}` | {ratio} | {threads} | " + " | ".join(f"{answer[part]:.2f}" for part in PARTS) + " |", flush=True)


main()
