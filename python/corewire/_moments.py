"""Second moments for AdamW's form of the update. It knows no sketch."""

import math
from typing import Any, Optional

import torch
import torch.distributed as dist

from corewire._stats import Clock, ring_bytes

# How much of the second moments is kept from step to step, when they are averaged over processes, and what is added to them of a tensor's
# own mean, so that no coordinate is blown up.
KEEP, SELDOM, FLOOR = 0.98, 64, 1e-3


class Moments:
    """Second moments of a process's gradients, and the common root by which all processes divide their momentum.

    The gradient of one process has up to n times the second moment of the mean's: their average is divided by n, which is right where
    noise outweighs the gradient, so that Adam's own learning rates hold.
    """

    def __init__(self, parameters: list[torch.Tensor], offsets: dict[int, int], zeros: torch.Tensor) -> None:
        # Tables of rows and columns; what has one dimension is kept number by number.
        self.tables = [
            (offsets[id(parameter)], parameter.shape[0] if parameter.dim() > 1 else parameter.numel(), parameter.numel())
            for parameter in parameters
        ]
        self.second, self.inverse_root = zeros, zeros.clone()

    def follow(
        self, gradient: torch.Tensor, step: int, machines: int, group: Optional[dist.ProcessGroup], clock: Clock
    ) -> int:
        """Takes a gradient in, and at some steps renews the common root. The bytes that this process sent."""
        self.second.mul_(KEEP).addcmul_(gradient, gradient, value=1 - KEEP)
        # Twice while the number of steps doubles, later every 64th: longer averages change more slowly.
        if step % min(SELDOM, 1 << max(0, step.bit_length() - 2)):
            return 0
        scale = 1 / (machines * (1 - KEEP ** (step + 1)))
        means = [self.second[at : at + count].view(rows, -1).mul(scale) for at, rows, count in self.tables]
        sums = torch.cat([part for table in means for part in (table.mean(1), table.mean(0))]).to("cpu", torch.bfloat16)
        if machines > 1:
            clock.add("sketch_seconds")
            dist.all_reduce(sums, group=group)
            clock.add("wire_seconds")
        rest = sums.float().div_(machines).to(self.second.device)
        for (at, rows, count), table in zip(self.tables, means):
            of_rows, of_columns, rest = rest[:rows], rest[rows : rows + table.shape[1]], rest[rows + table.shape[1] :]
            mean = of_rows.mean()
            product = torch.outer(of_rows, of_columns / mean.clamp_min(1e-30)).add_(FLOOR * mean).clamp_min_(1e-30)
            self.inverse_root[at : at + count] = product.rsqrt_().view(-1)
        return ring_bytes(2 * sums.numel(), machines)

    def state(self, common: bool, machines: int, group: Optional[dist.ProcessGroup]) -> dict[str, Any]:
        second = self.second.clone()
        if common and machines > 1:
            dist.all_reduce(second, group=group)
            second.div_(machines)
        return {"second": second, "inverse_root": self.inverse_root.clone(), "machines": machines}

    def check(self, saved: Any) -> None:
        """Refuses what `load` could not take."""
        fits = isinstance(saved, dict) and all(
            isinstance(saved.get(name), torch.Tensor) and saved[name].shape == self.second.shape for name in ("second", "inverse_root")
        )
        if not fits or not (type(saved.get("machines")) is int and saved["machines"] > 0):
            raise ValueError("saved: its moments are not those of a CoreState of this version and model")

    def load(self, saved: dict[str, Any], machines: int) -> None:
        self.second.copy_(saved["second"])
        self.inverse_root.copy_(saved["inverse_root"])
        if saved["machines"] != machines:
            # It divides by the number of processes, and stays until it is renewed.
            self.inverse_root.mul_(math.sqrt(machines / saved["machines"]))
