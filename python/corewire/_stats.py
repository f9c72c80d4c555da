"""What a state has done: bytes as they were sent, and seconds. It knows neither messages nor sketches."""

import dataclasses
import math
import time


@dataclasses.dataclass
class Stats:
    """What a state has done so far: its own steps, bytes that this process sent, seconds of its own."""

    steps: int = 0
    #: Bytes that this process handed to others, lengths and flags included.
    sent_bytes: int = 0
    #: What a ring all-reduce of the same gradients in their own type would have sent.
    dense_bytes: int = 0
    #: From gradients to scalars.
    sketch_seconds: float = 0.0
    #: Coding, sending, and waiting for the others.
    wire_seconds: float = 0.0
    #: From scalars to the estimate.
    reconstruct_seconds: float = 0.0

    @property
    def factor(self) -> float:
        """How many times fewer bytes than uncompressed."""
        return self.dense_bytes / self.sent_bytes if self.sent_bytes else math.nan

    def scalars(self) -> dict[str, float]:
        """By name, for TensorBoard's `add_scalars` or any logger."""
        return {**dataclasses.asdict(self), "factor": self.factor}


class Clock:
    """Adds the time since the last look to a field of the stats."""

    def __init__(self, stats: Stats) -> None:
        self.stats, self.last = stats, time.perf_counter()

    def add(self, field: str) -> None:
        now = time.perf_counter()
        setattr(self.stats, field, getattr(self.stats, field) + now - self.last)
        self.last = now


def ring_bytes(count: int, machines: int) -> int:
    """What a process sends in a ring all-reduce of so many bytes."""
    return math.ceil(2 * (machines - 1) / machines * count) if machines > 1 else 0
