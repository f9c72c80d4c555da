"""The Hadamard sketch in torch's own operations, for tensors that are not on the CPU, with the bits of the native one.

Signs and rows of a step come from the native module: a bit per parameter and eight bytes per scalar, made on the CPU. Every sum is of two
numbers, and in the native order, so that all devices which add as IEEE 754 says have the same bits.
"""

import torch

from corewire._native import Sketch

# The order of Paley's matrix, by the odd part of the whole order.
PALEY = {1: 1, 3: 12, 5: 20}


class DeviceSketch:
    """Projects and reconstructs on a device."""

    def __init__(self, sketch: Sketch, device: torch.device) -> None:
        self.native, self.device = sketch, device
        odd = sketch.order // (sketch.order & -sketch.order)
        self.paley = _paley(PALEY[odd])

    def project(self, step: int, vector: torch.Tensor) -> torch.Tensor:
        """The scalars of a vector."""
        padded = torch.zeros(self.native.order, dtype=vector.dtype, device=self.device)
        torch.mul(vector, self._signs(step, vector.dtype), out=padded[: len(vector)])
        return self._transform(padded, self.paley)[self._rows(step)]

    def reconstruct(self, step: int, scalars: torch.Tensor) -> torch.Tensor:
        """The vector that scalars stand for."""
        padded = torch.zeros(self.native.order, dtype=scalars.dtype, device=self.device)
        padded[self._rows(step)] = scalars
        sums = self._transform(padded, list(zip(*self.paley)))[: self.native.dim]
        # By a tensor: a GPU would multiply by the inverse of a number.
        return sums.mul_(self._signs(step, scalars.dtype)).div_(torch.tensor(len(scalars), dtype=scalars.dtype, device=self.device))

    def _signs(self, step: int, dtype: torch.dtype) -> torch.Tensor:
        packed = torch.from_numpy(self.native.signs(step)).to(self.device)
        bits = packed[:, None] >> torch.arange(8, dtype=torch.uint8, device=self.device) & 1
        return 1 - 2 * bits.view(-1)[: self.native.dim].to(dtype)

    def _rows(self, step: int) -> torch.Tensor:
        return torch.from_numpy(self.native.rows(step)).to(self.device)

    def _transform(self, numbers: torch.Tensor, matrix: list) -> torch.Tensor:
        """Sums over Paley's matrix, then over the strides of Sylvester's, the largest first."""
        table = numbers.view(len(matrix), -1)
        if len(matrix) > 1:
            table = torch.stack([_sum(table, signs) for signs in matrix])
        stride = table.shape[1] // 2
        while stride:
            first, second = table.view(-1, 2, stride).unbind(1)
            table = torch.stack([first + second, first - second], 1)
            stride //= 2
        return table.view(-1)


def _sum(table: torch.Tensor, signs: list) -> torch.Tensor:
    total = table[0] * signs[0]
    for row, sign in zip(table[1:], signs[1:]):
        total.add_(row) if sign > 0 else total.sub_(row)
    return total


def _paley(order: int) -> list:
    """Paley's matrix: 1 on the diagonal and in row 0, -1 in the rest of column 0, and else 1 where i - k is a square modulo order - 1."""
    squares = {root * root % (order - 1) for root in range(1, order - 1)} if order > 1 else set()
    entry = lambda i, k: 1 if i in (0, k) else -1 if k == 0 else 1 if (i - k) % (order - 1) in squares else -1  # noqa: E731
    return [[entry(i, k) for k in range(order)] for i in range(order)]
