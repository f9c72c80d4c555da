"""PyTorch in two lines: a few hundred times fewer bytes between the processes of a DistributedDataParallel model.

    state = CoreState(model, ratio=12, seed=1)
    ddp.register_comm_hook(state, core_hook)

Each process keeps the momentum of its own gradients and sends a sketch of it, one scalar for `ratio` parameters and about a bit and a half
for a scalar; all rebuild the same estimate of the mean momentum, which takes the gradient's place. So the optimiser must have no momentum
of its own: `state.optimizer(torch.optim.SGD(...))` moves it into the state, and an optimiser that still has some is refused at its first
step. Noise on a gradient would enter the momentum and move the parameters by lr/(1 - beta) times itself; noise on the momentum moves them
once. That is why SGD's accuracy survives.

With `state.optimizer(torch.optim.AdamW(...))` the momentum is divided by the root of second moments before it is sketched. They are those
of each process's own gradients, as products of row and column means, averaged over processes in the first steps and ever more seldom.

torch.distributed is the engine: any backend that carries bytes on the CPU, gloo for one.
"""

import collections
import dataclasses
import hashlib
import math
import numbers
import statistics
import time
import weakref
from collections.abc import Iterable
from typing import Any, Callable, Optional, Union

import numpy as np
import torch
import torch.distributed as dist

from corewire._device import DeviceSketch
from corewire._guard import Guard
from corewire._moments import Moments
from corewire._native import MeanWire, Sketch, fill_bucket, fold_momentum
from corewire._stats import Clock, Stats, ring_bytes

__all__ = ["CoreState", "Stats", "all_reduce_mean", "core_hook"]

WIRES = ("q", "4bit", "1bit", "int8", "float32")
# How much of the scale is kept from step to step without a momentum. With one it is 1 - beta times as much: gradients jump from step to
# step, a momentum drifts.
KEEP = 0.7
# A plan goes by the median of so many last steps, once there are a few; before, by the least of so many trials.
RECENT, FEW, TRIALS = 16, 3, 5
# Scalars of a smaller mean square are zeros.
LEAST_SQUARE = 1e-60
# What a checkpoint must have in common with the state that goes on from it.
SAVED = ("seed_commitment", "ratio", "wire", "eta", "keep_vectors")
# What else is in one.
STATE = ("step", "momentum", "scale_squared", "beta", "machines", "rank", "parameters", "moments")

# Gradients, and where they are: a parameter's offset in the model, its start in the bucket, and its count.
Place = tuple[int, int, int]
Bucket = tuple[torch.Tensor, list[Place]]


class CoreState:
    """The state of `core_hook`, one for each process.

    Args:
        model: the module whose parameters are trained (DDP's own, or what is inside), or a list of parameters or plain tensors. With a
            list, optimisers are looked at from the first call of the hook or of `optimizer` on, so that `all_reduce_mean` leaves local
            ones alone.
        ratio: parameters for each scalar that travels; 12 is safe, 37 saves three times as much for about a point of accuracy.
        beta: the momentum's factor, which `optimizer` takes from the optimiser.
        seed: what all processes must share: a whole number, or 32 bytes that nobody else knows.
        wire: "q" for integers at their entropy through a sharded hub, "4bit" for packed integers and "1bit" for signs through it,
            "int8" for an all-reduce of bytes, "float32" for scalars as they are.
        eta: the variance that each quantisation adds, relative to the scalars' own.
        dense_steps: so many first steps are sent uncompressed.
        keep_vectors: parameters of one dimension (biases, norms) are sent as they are.
        optimizer: "sgd", or "adamw" for its form of the update, with a plain `torch.optim.SGD` of your own; `optimizer` finds it out itself.
        scaler: the GradScaler, where gradients are scaled.
        process_group: the processes, all by default. The same as DistributedDataParallel's: torch does not tell the hook which group the
            model was given. A state without it, of a model that trains on some of the processes, would average over all of them, which
            waits for those that never call, or mixes models that are trained apart.

    Every process holds two more copies of the parameters in float32: its momentum and a place to work in; four with AdamW.

    >>> import torch
    >>> from corewire.torch import CoreState
    >>> net = torch.nn.Linear(30, 10)
    >>> state = CoreState(net, ratio=12, seed=1)
    >>> optimizer = state.optimizer(torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9))
    >>> state.beta, optimizer.param_groups[0]["momentum"]
    (0.9, 0.0)
    """

    def __init__(
        self,
        model: Union[torch.nn.Module, Iterable[torch.Tensor]],
        ratio: float = 12,
        beta: float = 0.9,
        seed: Union[int, bytes] = 0,
        wire: str = "q",
        eta: float = 0.2,
        dense_steps: int = 0,
        keep_vectors: bool = False,
        optimizer: str = "sgd",
        scaler: Optional[Any] = None,
        process_group: Optional[dist.ProcessGroup] = None,
    ) -> None:
        if wire not in WIRES:
            raise ValueError(f"wire: {wire!r} is none of {', '.join(map(repr, WIRES))}")
        _check_number("ratio", ratio, lambda value: value >= 1, "a number from 1 on")
        _check_number("beta", beta, lambda value: 0 <= value < 1, "a number from 0 to below 1")
        _check_number("eta", eta, lambda value: value > 0, "a positive number")
        _check_number("dense_steps", dense_steps, lambda value: value >= 0 and value == int(value), "a whole number from 0 on")
        if not isinstance(keep_vectors, bool):
            raise ValueError(f"keep_vectors: {keep_vectors!r} is neither True nor False")
        if optimizer not in ("sgd", "adamw"):
            raise ValueError("optimizer: it is neither 'sgd' nor 'adamw'; an optimiser itself goes to state.optimizer(...)")
        if isinstance(seed, numbers.Integral) and not isinstance(seed, bool):
            seed = int(seed)
        if not (isinstance(seed, bytes) and len(seed) == 32 or type(seed) is int and 0 <= seed < 2**64):
            raise ValueError("seed: it is neither a whole number from 0 to 2**64 - 1 nor 32 bytes")
        if scaler is not None and not hasattr(scaler, "get_scale"):
            raise ValueError(f"scaler: {type(scaler).__name__} is no GradScaler")
        parameters = model.parameters() if isinstance(model, torch.nn.Module) else model
        parameters = list(parameters) if isinstance(parameters, Iterable) else [None]
        if not all(isinstance(parameter, torch.Tensor) and parameter.is_floating_point() for parameter in parameters):
            raise ValueError("model: it is neither a module nor a list of tensors of floating-point numbers")
        if len({id(parameter) for parameter in parameters}) < len(parameters):
            raise ValueError("model: a parameter stands in it twice")
        # A plain tensor asks for its mean without asking for a gradient; a parameter without one is frozen.
        self._parameters = [tensor for tensor in parameters if tensor.requires_grad or not isinstance(tensor, torch.nn.Parameter)]
        if not self._parameters:
            raise ValueError("model: it has no parameter that requires a gradient")
        taken = {id(parameter) for parameter in self._parameters}
        self._frozen = [(k, parameter) for k, parameter in enumerate(parameters) if id(parameter) not in taken]
        self.ratio, self.beta, self.eta, self.wire = float(ratio), float(beta), float(eta), wire
        self.seed, self.dense_steps, self.keep_vectors = seed, int(dense_steps), keep_vectors
        self.scaler, self.process_group = scaler, process_group
        self.step = 0
        self._stats = Stats()
        # What the last step sent, where it sent a sketch, and over how many processes.
        self._last_sent: Optional[tuple[int, int]] = None
        self._agreed = 0
        # When the last exchange of the hook ended, and how long it took from then until all buckets of the next one were there.
        self._ended: Optional[float] = None
        self._rest_seconds = math.nan
        # How long it took from the first bucket of that exchange to its last, and the last one's share of the bytes: what plain DDP hides.
        self._begun = self._arriving_seconds = self._last_share = math.nan
        # What the last steps took beside the wire, over how many processes.
        self._computed: collections.deque[tuple[int, float]] = collections.deque(maxlen=RECENT)
        self._coding_seconds = 0.0
        self._lay_out()
        budget = max(1, round(self._sketched / self.ratio)) if self._sketched else 0
        self._sketch = Sketch(self._sketched, budget, "hadamard", seed) if budget else None
        self._scalars = torch.zeros(budget)
        devices = {parameter.device for parameter in self._parameters}
        self._use(devices.pop() if len(devices) == 1 else torch.device("cpu"))
        self._scale_squared = 0.0
        self._wires: dict[int, MeanWire] = {}
        self._moments = self._new_moments() if optimizer == "adamw" else None
        self._moved = self._loaded = False
        self._pending: list[tuple[torch.Tensor, list[Place], torch.futures.Future]] = []
        self._guard = Guard(set(self._offsets), {id(parameter): _in_words(k, parameter) for k, parameter in self._frozen})
        self._guarding = weakref.finalize(self, self._guard.close)
        self._guarding.atexit = False
        if isinstance(model, torch.nn.Module):
            self._guard.begin()

    def _use(self, device: torch.device) -> None:
        """Keeps the vectors on this device, and sketches there where it is not the CPU."""
        self._momentum, self._frame = torch.zeros(self._size, device=device), torch.zeros(self._size, device=device)
        self._elsewhere = DeviceSketch(self._sketch, device) if self._sketch is not None and device.type != "cpu" else None

    def _lay_out(self) -> None:
        """Offsets of the parameters in their own order: first what is sketched, then what is kept as it is."""
        kept = [self.keep_vectors and parameter.dim() <= 1 for parameter in self._parameters]
        self._offsets: dict[int, int] = {}
        offset = 0
        for wanted in (False, True):
            for parameter, is_kept in zip(self._parameters, kept):
                if is_kept == wanted:
                    self._offsets[id(parameter)] = offset
                    offset += parameter.numel()
            if not wanted:
                self._sketched = offset
        self._size = offset

    # The optimiser.

    def optimizer(self, optimizer: torch.optim.Optimizer) -> torch.optim.Optimizer:
        """Moves an optimiser's momentum into this state, and returns the optimiser to use from here on.

        Of `torch.optim.SGD` the momentum becomes 0 and the weight decay is divided by 1 - momentum: the same steps as before, but for the
        sketch's noise. For `torch.optim.AdamW` a `torch.optim.SGD` with its rates and weight decays is returned, since the state does the
        rest: make learning-rate schedules on that one, for it refuses to step when the other one's rates were changed. Second moments are
        kept with 0.98 from step to step, whatever AdamW's second beta was, and are floored by a thousandth of a tensor's mean in place of
        `eps`.
        """
        if self._loaded:
            raise ValueError("optimizer: a checkpoint was loaded into the state already: call state.optimizer(...) first, and load afterwards")
        if self.step:
            raise ValueError("optimizer: steps have been taken already: call state.optimizer(...) before the first one")
        if self._moved:
            raise ValueError("optimizer: a momentum was moved into the state already: make a new state for another optimiser")
        if not isinstance(optimizer, torch.optim.Optimizer):
            raise ValueError(f"optimizer: {type(optimizer).__name__} is neither torch.optim.SGD nor torch.optim.AdamW")
        groups = optimizer.param_groups
        if not all(id(parameter) in self._offsets for group in groups for parameter in group["params"] if parameter.requires_grad):
            raise ValueError("optimizer: it has parameters that the state was not made for")
        for k, parameter in enumerate(parameter for group in groups for parameter in group["params"]):
            if id(parameter) not in self._offsets:
                # Held, so that nothing else gets its id.
                self._frozen.append((k, parameter))
                self._guard.frozen.setdefault(id(parameter), _in_words(k, parameter))
        if isinstance(optimizer, torch.optim.AdamW):
            plain = self._adamw(optimizer)
            self._guard.begin()
            return plain
        if not isinstance(optimizer, torch.optim.SGD):
            raise ValueError(f"optimizer: {type(optimizer).__name__} is neither torch.optim.SGD nor torch.optim.AdamW")
        if self._moments is not None:
            raise ValueError("optimizer: the state was made for AdamW, and this is torch.optim.SGD")
        momenta = {group["momentum"] for group in groups}
        if len(momenta) != 1:
            raise ValueError(f"optimizer: its groups have different momenta, {sorted(momenta)}")
        if any(group["dampening"] or group["nesterov"] for group in groups):
            raise ValueError("optimizer: neither dampening nor nesterov has a form here")
        momentum = float(momenta.pop())
        if momentum == 0 and self.beta != 0:
            raise ValueError(
                f"optimizer: it has no momentum, and the state's beta is {self.beta}: give the optimiser the momentum that you want, or make "
                "the state with beta=0; where a checkpoint was loaded into the optimiser, make it anew, and load after state.optimizer(...)"
            )
        self.beta, self._moved = momentum, True
        self._guard.begin()
        for group in groups:
            group["weight_decay"] /= 1 - self.beta
            group["momentum"] = 0.0
        return optimizer

    def _adamw(self, optimizer: torch.optim.AdamW) -> torch.optim.SGD:
        betas = {group["betas"][0] for group in optimizer.param_groups}
        if len(betas) != 1 or any(group["amsgrad"] or group["maximize"] for group in optimizer.param_groups):
            raise ValueError("optimizer: neither several betas nor amsgrad or maximize has a form here")
        self.beta, self._moved = float(betas.pop()), True
        self._moments = self._new_moments()
        groups = [{key: group[key] for key in ("params", "lr", "weight_decay")} for group in optimizer.param_groups]
        plain = torch.optim.SGD(groups, lr=optimizer.defaults["lr"])
        rates = [float(group["lr"]) for group in optimizer.param_groups]

        def refuse_schedules(*_: Any) -> None:
            if [float(group["lr"]) for group in optimizer.param_groups] != rates:
                raise ValueError(
                    "the learning rate of the AdamW that was passed to state.optimizer has changed, and it trains no more: make the "
                    "scheduler on the optimiser that state.optimizer returned"
                )

        plain.register_step_pre_hook(refuse_schedules)
        return plain

    def _new_moments(self) -> Moments:
        return Moments(self._parameters, self._offsets, torch.zeros_like(self._frame))

    @property
    def seed_commitment(self) -> str:
        """What tells one seed from another and gives none away."""
        secret = self.seed if isinstance(self.seed, bytes) else str(self.seed).encode()
        return hashlib.sha256(b"corewire seed " + secret).hexdigest()[:16]

    def close(self) -> None:
        """Stops looking at optimisers and gradients, for whoever goes on without the hook."""
        self._guarding()

    # The hook.

    def _take(self, bucket: dist.GradBucket) -> torch.futures.Future:
        """Takes a bucket in; the last one of a step sends them all."""
        self._guard.begin()
        buffer, places = bucket.buffer(), []
        for parameter, gradient in zip(bucket.parameters(), bucket.gradients()):
            offset = self._offsets.get(id(parameter))
            if offset is None:
                raise ValueError("the model has a parameter that the CoreState was not made for: make a new state")
            start = gradient.storage_offset() - buffer.storage_offset()
            places.append((offset, start, parameter.numel()))
        future: torch.futures.Future = torch.futures.Future()
        if not self._pending:
            self._begun = time.perf_counter()
        self._pending.append((buffer, places, future))
        if bucket.is_last():
            self._finish()
        return future

    @torch.no_grad()
    def _finish(self) -> None:
        pending, self._pending = self._pending, []
        now, counts = time.perf_counter(), [buffer.numel() for buffer, _, _ in pending]
        self._arriving_seconds, self._last_share = now - self._begun, counts[-1] / sum(counts)
        if self._ended is not None:
            self._rest_seconds = now - self._ended
        try:
            self._guard.refuse_mixtures()
            if not self._guard.watching:
                taken = {offset for _, places, _ in pending for offset, _, _ in places}
                self._guard.watch(parameter for parameter in self._parameters if self._offsets[id(parameter)] in taken)
            estimate = self._average([(buffer, places) for buffer, places, _ in pending])
            for buffer, places, _ in pending:
                if estimate is None:
                    buffer.fill_(math.nan)
                elif buffer.dtype == torch.float32 and buffer.device.type == estimate.device.type == "cpu":
                    fill_bucket(estimate.numpy(), places, buffer.numpy())
                else:
                    for offset, start, count in places:
                        buffer[start : start + count].copy_(estimate[offset : offset + count])
        except BaseException as error:
            for _, _, future in pending:
                if isinstance(error, Exception):
                    future.set_exception(error)
            raise
        self._ended = time.perf_counter()
        for buffer, _, future in pending:
            future.set_result(buffer)

    def _average(self, buckets: list[Bucket], what: str = "gradient") -> Optional[torch.Tensor]:
        """The common estimate of the mean momentum, from the local gradients. None where one is not finite and a GradScaler is there to
        skip the step."""
        clock = Clock(self._stats)
        self._guard.exchanged()
        machines = self._machines()
        rank = self._rank()
        if self._agreed != machines:
            self._agree(machines)
            clock.add("wire_seconds")
        sent_before, computed_before = self._stats.sent_bytes, self._own_seconds()
        scale = self.scaler.get_scale() if self.scaler is not None else 1.0
        share = 1.0 if self._moments is None else 1 - self.beta
        finite = self._fold(buckets, share / scale)
        clock.add("sketch_seconds")
        guilty = self._not_finite(finite, rank, machines)
        clock.add("wire_seconds")
        if guilty:
            if self.scaler is None:
                raise FloatingPointError(f"the {what} of process {guilty[0]} is not finite at step {self.step}")
            return None
        # The old momentum's place is free from here on.
        self._momentum, self._frame = self._frame, self._momentum
        vector = self._momentum if self._moments is None else self._whitened(buckets, scale, machines, clock)
        clock.add("sketch_seconds")
        if machines > 1:
            self._stats.dense_bytes += ring_bytes(sum(buffer.numel() * buffer.element_size() for buffer, _ in buckets), machines)
            vector = self._mean(vector, rank, machines, clock)
        if scale != 1.0:
            vector = torch.mul(vector, scale, out=self._frame)
        if self.step >= self.dense_steps:
            self._last_sent = (machines, self._stats.sent_bytes - sent_before)
            self._computed.append((machines, self._own_seconds() - computed_before))
        self.step += 1
        self._stats.steps += 1
        return vector

    def _agree(self, machines: int) -> None:
        """Refuses processes that differ in what must be common, once: they would train different models in silence."""
        if machines > 1:
            mine: dict[str, Any] = {
                **{name: getattr(self, name) for name in (*SAVED, "beta", "dense_steps", "step")},
                "optimizer": "sgd" if self._moments is None else "adamw",
                "shapes of the model's parameters": [tuple(parameter.shape) for parameter in self._parameters],
            }
            everyones: list[Any] = [None] * machines
            dist.all_gather_object(everyones, mine, group=self.process_group)
            self._stats.sent_bytes += (machines - 1) * len(str(mine))
            for rank, theirs in enumerate(everyones):
                for name, value in everyones[0].items():
                    if theirs.get(name) != value:
                        raise ValueError(f"{name}: process 0 has {value}, process {rank} has {theirs.get(name)}: it must be the same")
        self._agreed = machines

    def _fold(self, buckets: list[Bucket], scale: float) -> bool:
        """Writes the next momentum into the frame, and says whether all gradients are finite."""
        if sum(count for _, places in buckets for _, _, count in places) < self._size:
            # DDP was told to leave some parameters out.
            torch.mul(self._momentum, self.beta, out=self._frame)
        if self._elsewhere is not None:
            return self._fold_elsewhere(buckets, scale)
        momentum, frame = self._momentum.numpy(), self._frame.numpy()
        return all(
            [
                fold_momentum(buffer.to("cpu", torch.float32).numpy(), places, momentum, self.beta, scale, frame)
                for buffer, places in buckets
            ]
        )

    def _fold_elsewhere(self, buckets: list[Bucket], scale: float) -> bool:
        torch.mul(self._momentum, self.beta, out=self._frame)
        for buffer, places in buckets:
            for offset, start, count in places:
                self._frame[offset : offset + count].add_(buffer[start : start + count], alpha=scale)
        return all(bool(torch.isfinite(buffer).all()) for buffer, _ in buckets)

    def _whitened(self, buckets: list[Bucket], scale: float, machines: int, clock: Clock) -> torch.Tensor:
        """The momentum over the root of the second moments, after these have taken the gradients in."""
        frame = self._frame.zero_()
        for buffer, places in buckets:
            for offset, start, count in places:
                frame[offset : offset + count].copy_(buffer[start : start + count])
        self._stats.sent_bytes += self._moments.follow(frame.div_(scale), self.step, machines, self.process_group, clock)
        torch.mul(self._momentum, self._moments.inverse_root, out=frame)
        return frame.div_(1 - self.beta ** (self.step + 1))

    def _mean(self, vector: torch.Tensor, rank: int, machines: int, clock: Clock) -> torch.Tensor:
        """The mean of all processes' vectors, which overwrites the frame."""
        exact = 0 if self.step < self.dense_steps else self._sketched
        if exact < self._size:
            self._exact_mean(self._frame[exact:].copy_(vector[exact:]), machines)
            clock.add("wire_seconds")
        if exact:
            self._sketched_mean(vector[:exact], self._frame[:exact], rank, machines, clock)
        return self._frame

    def _not_finite(self, finite: bool, rank: int, machines: int) -> list[int]:
        """The processes whose gradients are not finite: all processes know all of them."""
        if machines == 1:
            return [] if finite else [rank]
        flags = torch.zeros(machines, dtype=torch.uint8)
        flags[rank] = 0 if finite else 1
        dist.all_reduce(flags, group=self.process_group)
        self._stats.sent_bytes += ring_bytes(machines, machines)
        return torch.nonzero(flags).flatten().tolist()

    def _exact_mean(self, numbers: torch.Tensor, machines: int) -> None:
        dist.all_reduce(numbers, group=self.process_group)
        numbers.div_(machines)
        self._stats.sent_bytes += ring_bytes(4 * numbers.numel(), machines)

    def _sketched_mean(self, vector: torch.Tensor, out: torch.Tensor, rank: int, machines: int, clock: Clock) -> None:
        scalars = self._scalars
        if self._elsewhere is None:
            self._sketch.project(self.step, vector.numpy(), scalars.numpy())
        else:
            scalars.copy_(self._elsewhere.project(self.step, vector))
        clock.add("sketch_seconds")
        if self.wire == "float32":
            self._exact_mean(scalars, machines)
        else:
            self._quantised_mean(scalars, rank, machines)
        clock.add("wire_seconds")
        if self._elsewhere is None:
            self._sketch.reconstruct(self.step, scalars.numpy(), out.numpy())
        else:
            out.copy_(self._elsewhere.reconstruct(self.step, scalars.to(out.device)))
        clock.add("reconstruct_seconds")

    def _quantised_mean(self, scalars: torch.Tensor, rank: int, machines: int) -> None:
        if machines not in self._wires:
            code = self.wire if self.wire in ("4bit", "1bit") else "q"
            self._wires[machines] = MeanWire(self.seed, len(scalars), machines, code)
        wire = self._wires[machines]
        if self._scale_squared == 0.0:
            first = scalars.double().square().mean() / machines
            dist.all_reduce(first, group=self.process_group)
            self._stats.sent_bytes += ring_bytes(8, machines)
            self._scale_squared = _scale_or_none(float(first) / machines)
            if self._scale_squared == 0.0:
                # Nobody has anything to say yet: a scale that is made up would take steps to grow to the first gradient.
                scalars.zero_()
                return
        step = math.sqrt(12 * machines * self.eta * self._scale_squared)
        step_down = math.sqrt(12 * self.eta * self._scale_squared)
        noise = 1 + 2 * self.eta
        if self.wire == "int8":
            noise = 1 + self.eta
            if machines > 127:
                raise ValueError(f"wire: the sum of {machines} processes does not fit into the bytes of 'int8'; take 'q' or '4bit'")
            # Steps are so long that no sum leaves a byte.
            largest = scalars.abs().max()
            dist.all_reduce(largest, dist.ReduceOp.MAX, group=self.process_group)
            step = max(step, float(largest) / (127 // machines - 0.5))
            integers = torch.empty(len(scalars), dtype=torch.int8)
            self._coded(wire.integers, self.step, rank, scalars.numpy(), step, integers.numpy())
            dist.all_reduce(integers, group=self.process_group)
            self._stats.sent_bytes += ring_bytes(len(scalars) + 4, machines)
            mean_square = self._coded(wire.mean_of_sums, self.step, integers.numpy(), step, scalars.numpy())
        else:
            messages = self._all_to_all(self._coded(wire.split, self.step, rank, scalars.numpy(), step), machines)
            reply = self._coded(wire.combine, self.step, rank, messages, step, step_down)
            replies = self._all_gather(reply, machines)
            mean_square = self._coded(wire.join, self.step, replies, step_down, scalars.numpy())
        keep = KEEP * (1 - self.beta)
        followed = keep * self._scale_squared + (1 - keep) * mean_square / noise
        self._scale_squared = _scale_or_none(followed * self._growth())

    def _coded(self, work: Callable[..., Any], *arguments: Any) -> Any:
        """Does work of the wire's that is not waiting, and counts its seconds."""
        begun = time.perf_counter()
        done = work(*arguments)
        self._coding_seconds += time.perf_counter() - begun
        return done

    def _own_seconds(self) -> float:
        """What this process has computed so far, waiting and sending left out."""
        return self._stats.sketch_seconds + self._stats.reconstruct_seconds + self._coding_seconds

    def _growth(self) -> float:
        """By how much the momentum's square grows until the next step if gradients are independent; first steps would cost more bits
        otherwise. Adam's momentum is already divided by how much it has grown."""
        square = self.beta**2
        return 1.0 if self._moments is not None else (1 - square ** (self.step + 2)) / (1 - square ** (self.step + 1))

    def _all_to_all(self, messages: list[bytes], machines: int) -> list[bytes]:
        lengths = torch.tensor([len(message) for message in messages], dtype=torch.int32)
        theirs = torch.empty_like(lengths)
        dist.all_to_all_single(theirs, lengths, group=self.process_group)
        sent = _octets(b"".join(messages))
        received = torch.empty(int(theirs.sum()), dtype=torch.uint8)
        dist.all_to_all_single(received, sent, theirs.tolist(), lengths.tolist(), group=self.process_group)
        self._stats.sent_bytes += 4 * (machines - 1) + int(lengths.sum()) - int(lengths[self._rank()])
        return [part.numpy().tobytes() for part in received.split(theirs.tolist())]

    def _all_gather(self, message: bytes, machines: int) -> list[bytes]:
        lengths = torch.zeros(machines, dtype=torch.int32)
        dist.all_gather_into_tensor(lengths, torch.tensor([len(message)], dtype=torch.int32), group=self.process_group)
        longest = int(lengths.max())
        padded = torch.zeros(longest, dtype=torch.uint8)
        padded[: len(message)] = _octets(message)
        received = torch.empty(machines * longest, dtype=torch.uint8)
        dist.all_gather_into_tensor(received, padded, group=self.process_group)
        self._stats.sent_bytes += (machines - 1) * (4 + longest)
        table = received.view(machines, longest)
        return [table[k, : int(length)].numpy().tobytes() for k, length in enumerate(lengths)]

    # Checkpoints.

    def state_dict(self, common: bool = False) -> dict[str, Any]:
        """What a checkpoint must hold. Each process saves its own, and goes on from it with the same bits.

        With `common`, which all processes must then call together, every process gets the same one, with the mean of all momenta: it may be
        restored on any number of processes, and is the same run but for the last bits.
        """
        momentum, machines = self._momentum.clone(), self._machines()
        if common and machines > 1:
            dist.all_reduce(momentum, group=self.process_group)
            momentum.div_(machines)
        return {
            "step": self.step,
            "momentum": momentum,
            "scale_squared": self._scale_squared,
            "beta": self.beta,
            "machines": None if common else machines,
            "rank": None if common else self._rank(),
            "parameters": [tuple(parameter.shape) for parameter in self._parameters],
            **{name: getattr(self, name) for name in SAVED},
            "moments": None if self._moments is None else self._moments.state(common, machines, self.process_group),
        }

    def load_state_dict(self, saved: dict[str, Any]) -> None:
        """Goes on from a checkpoint. A checkpoint that is refused changes nothing.

        Make the model, the state and the optimiser as at the start, `optimizer` first, and load into all of them afterwards.
        """
        if not isinstance(saved, dict):
            raise ValueError(f"saved: {type(saved).__name__} is no state_dict of a CoreState")
        for name in (*STATE, *SAVED):
            if name not in saved:
                raise ValueError(f"saved: it is no state_dict of a CoreState of this version, for it lacks {name!r}")
        shapes = [tuple(parameter.shape) for parameter in self._parameters]
        if not isinstance(saved["parameters"], list) or [tuple(shape) for shape in saved["parameters"]] != shapes:
            raise ValueError("saved: its parameters are not those of this model")
        for name in SAVED:
            if saved[name] != getattr(self, name):
                raise ValueError(f"saved: {name} was {saved[name]}, and is {getattr(self, name)} here")
        if saved["machines"] is not None and (saved["rank"], saved["machines"]) != (self._rank(), self._machines()):
            raise ValueError(
                f"saved: it is process {saved['rank']}'s own of {saved['machines']}, and here is process {self._rank()} of "
                f"{self._machines()}: save with state_dict(common=True) what any process of any number may go on from"
            )
        if (saved["moments"] is None) != (self._moments is None):
            before, now = ("AdamW", "SGD") if self._moments is None else ("SGD", "AdamW")
            raise ValueError(
                f"saved: {before} was the optimiser then, and here the state is for {now}: call state.optimizer(...) on the same kind of "
                "optimiser first, and load afterwards"
            )
        _check_number("saved: step", saved["step"], lambda value: value >= 0 and value == int(value), "a whole number from 0 on")
        _check_number("saved: beta", saved["beta"], lambda value: 0 <= value < 1, "a number from 0 to below 1")
        _check_number("saved: scale_squared", saved["scale_squared"], lambda value: value >= 0, "a number from 0 on")
        momentum = saved["momentum"]
        if not isinstance(momentum, torch.Tensor) or momentum.shape != self._momentum.shape or not momentum.is_floating_point():
            raise ValueError(f"saved: its momentum is no tensor of {self._size} floating-point numbers")
        if self._moments is not None:
            self._moments.check(saved["moments"])
            # Nothing is refused from here on.
            self._moments.load(saved["moments"], self._machines())
        self.step, self.beta, self._agreed = int(saved["step"]), float(saved["beta"]), 0
        self._moved = self._loaded = True
        self._scale_squared = float(saved["scale_squared"])
        self._momentum.copy_(momentum)

    def _rank(self) -> int:
        return dist.get_rank(self.process_group) if dist.is_initialized() else 0

    def _machines(self) -> int:
        return dist.get_world_size(self.process_group) if dist.is_initialized() else 1

    def __getstate__(self) -> dict[str, Any]:
        raise TypeError("a CoreState is saved by state_dict(), which torch.save takes")

    # Whether it pays.

    def stats(self) -> Stats:
        """What the state has done until now: steps, bytes as they were sent, seconds of sketch, wire and reconstruction.

        >>> tensor = torch.ones(3)
        >>> state = CoreState([tensor], beta=0)
        >>> _ = all_reduce_mean(tensor, state)
        >>> state.stats().steps, state.stats().sent_bytes
        (1, 0)
        """
        return dataclasses.replace(self._stats)

    def plan(self, mbit_s: float, rtt_ms: float = 0.0, machines: Optional[int] = None) -> dict[str, Any]:
        """What a step would take on a link of this bandwidth and round trip, with and without, from this machine's own times.

        Once the hook has taken some steps over as many processes, compute seconds are the median of the last ones, and bytes those of the
        last one. Before, sketch and code are tried on this model's size here and now, the least of several times, and bytes are about what
        the wire takes for a scalar.

        Plain DDP hides some of its exchange behind the backward pass; this hook hides nothing. What it could hide is known once the hook
        has seen a backward pass, from the first bucket to the last: `dense_seconds` is what is left to wait for then, `hidden_seconds` what
        was taken off. Until then `hidden_seconds` is NaN, and `dense_seconds` and `pays_below_mbit_s` are the most that they can be.

        >>> plan = CoreState(torch.nn.Linear(1000, 1000)).plan(mbit_s=10, rtt_ms=5, machines=4)
        >>> plan["dense_bytes"], plan["dense_bytes"] > 200 * plan["bytes"], plan["pays"]
        (6006000, True, True)
        """
        _check_number("mbit_s", mbit_s, lambda value: value > 0, "a positive number")
        _check_number("rtt_ms", rtt_ms, lambda value: value >= 0, "a number from 0 on")
        machines = max(2, self._machines()) if machines is None else machines
        _check_number("machines", machines, lambda value: value >= 1 and value == int(value), "a whole number from 1 on")
        machines = int(machines)
        compute = self._compute_seconds(machines)
        dense_bytes = ring_bytes(sum(parameter.numel() * parameter.element_size() for parameter in self._parameters), machines)
        over, last = self._last_sent or (0, 0)
        sent = last if over == machines else self._guess(machines)
        trips_dense, trips = 2 * (machines - 1), self._trips(machines)
        with_ = compute + sent * 8e-6 / mbit_s + trips * rtt_ms * 1e-3
        dense = dense_bytes * 8e-6 / mbit_s + trips_dense * rtt_ms * 1e-3
        known = not math.isnan(self._arriving_seconds)
        # What is left of it begins when the last bucket is there: at least that bucket's own exchange.
        left = [(1.0, self._arriving_seconds), (self._last_share, 0.0)] if known else [(1.0, 0.0)]
        without = max(share * dense - hidden for share, hidden in left)
        pays_below = 0.0
        for share, hidden in left:
            saved_bits = 8e-6 * (share * dense_bytes - sent)
            extra = compute + hidden + (trips - share * trips_dense) * rtt_ms * 1e-3
            if saved_bits > 0:
                pays_below = max(pays_below, saved_bits / extra if extra > 0 else math.inf)
        most = "" if known else "at most "
        both = f"{with_:.3g} s instead of {most}{without:.3g} s"
        if machines == 1:
            verdict = "do not compress: one process sends nothing"
        elif pays_below == 0:
            verdict = f"do not compress: no fewer bytes are sent than without, and a step's exchange takes {both} on this link"
        elif with_ < without:
            verdict = f"a step's exchange takes {both} on this link"
        else:
            verdict = f"do not compress on this link: {both}"
        if pays_below > 0:
            bandwidth = f"{pays_below:.3g}" if pays_below < 100 else f"{pays_below:.0f}"
            verdict += "; it pays on any link" if pays_below == math.inf else f"; it pays below {most}{bandwidth} Mbit/s"
        return {
            "bytes": sent,
            "dense_bytes": dense_bytes,
            "compute_seconds": compute,
            "seconds": with_,
            "dense_seconds": without,
            "hidden_seconds": dense - without if known else math.nan,
            # Of whole steps, once the hook has seen some: its own exchange waits for the whole backward pass.
            "step_seconds": self._rest_seconds + with_,
            "dense_step_seconds": self._rest_seconds + without,
            "pays_below_mbit_s": pays_below,
            "pays": with_ < without,
            "verdict": verdict,
        }

    def _trips(self, machines: int) -> int:
        """The round trips of a step. Through gloo, processes that are 50 ms apart take n - 1 of them for an all-reduce of a few bytes,
        2(n - 1) for a longer one, 1 for an all-to-all and n - 1 for an all-gather, each with its lengths before it."""
        few, many = machines - 1, 2 * (machines - 1)
        # The flags first; an all-reduce of what is kept as it is.
        trips = few + (many if self._sketched < self._size else 0)
        if self._sketch is None or machines == 1:
            return trips
        return trips + {"float32": many, "int8": few + many}.get(self.wire, 2 * (1 + few))

    def _compute_seconds(self, machines: int) -> float:
        """What a step takes this process beside the wire: as it was in the last steps, or as trials say."""
        seen = [seconds for over, seconds in self._computed if over == machines]
        if machines > 1 and len(seen) >= FEW:
            return statistics.median(seen)
        if self._sketch is None or machines == 1:
            return 0.0
        vectors, trials, begun = np.ones((3, self._sketched), np.float32), [], time.perf_counter()
        # The first one warms up. A large model is tried less often.
        while len(trials) < 2 or len(trials) <= TRIALS and time.perf_counter() - begun < 1.0:
            trials.append(self._trial(machines, *vectors))
        return min(trials[1:])

    def _trial(self, machines: int, vector: np.ndarray, momentum: np.ndarray, frame: np.ndarray) -> float:
        """The seconds of a step's arithmetic on numbers that mean nothing."""
        places = [(0, 0, self._sketched)]
        out, clock = np.empty(len(self._scalars), np.float32), Clock(Stats())
        fold_momentum(vector, places, momentum, self.beta, 1.0, frame)
        self._sketch.project(0, frame, out)
        clock.add("sketch_seconds")
        wire = MeanWire(self.seed, len(out), machines, self.wire if self.wire in ("4bit", "1bit") else "q")
        step = math.sqrt(12 * self.eta * float(np.mean(np.square(out))))
        if self.wire == "int8":
            integers = np.empty(len(out), np.int8)
            step = max(step, float(np.abs(out).max()) / 126)
            clock.last = time.perf_counter()
            wire.integers(0, 0, out, step, integers)
            wire.mean_of_sums(0, integers, step, out)
        elif self.wire != "float32":
            clock.last = time.perf_counter()
            first = wire.split(0, 0, out, step)
            clock.add("sketch_seconds")
            messages = [first[0]] + [wire.split(0, rank, out, step)[0] for rank in range(1, machines)]
            # All hubs' replies are as long as that of one hub of everything.
            alone = MeanWire(self.seed, len(out), 1, self.wire)
            reply = alone.combine(0, 0, alone.split(0, 0, out, step), step, step)
            clock.last = time.perf_counter()
            wire.combine(0, 0, messages, step, step)
            alone.join(0, [reply], step, out)
        else:
            clock.last = time.perf_counter()
        self._sketch.reconstruct(0, out, frame)
        fill_bucket(frame, places, vector)
        clock.add("sketch_seconds")
        return clock.stats.sketch_seconds

    def _guess(self, machines: int) -> int:
        """The bytes of a step: scalars by what the wire takes for one, flags, what is kept, and lengths and scales of hubs' messages."""
        bits = {"q": 1.6, "4bit": 4.0, "1bit": 1.0, "int8": 8.0, "float32": 32.0}[self.wire]
        count = math.ceil(len(self._scalars) * bits / 8) + machines + 4 * (self._size - self._sketched)
        framed = {"q": 8, "4bit": 12, "1bit": 12}.get(self.wire, 0) if self._sketch is not None else 0
        return ring_bytes(count, machines) + 2 * framed * (machines - 1)


# torch looks at these annotations: they must be types, not strings.
def core_hook(state: CoreState, bucket: dist.GradBucket) -> torch.futures.Future[torch.Tensor]:
    """The communication hook: `ddp.register_comm_hook(state, core_hook)`.

    One process stands for all here; under torchrun `init_process_group("gloo")` finds the others.

    >>> import torch.distributed as dist
    >>> dist.init_process_group("gloo", rank=0, world_size=1, store=dist.HashStore())
    >>> net = torch.nn.Linear(30, 10)
    >>> ddp = torch.nn.parallel.DistributedDataParallel(net)
    >>> state = CoreState(net, ratio=12, seed=1)
    >>> ddp.register_comm_hook(state, core_hook)
    >>> optimizer = state.optimizer(torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9))
    >>> ddp(torch.ones(1, 30)).sum().backward()
    >>> _ = optimizer.step()
    >>> state.stats().steps
    1
    >>> dist.destroy_process_group()
    """
    return state._take(bucket)


@torch.no_grad()
def all_reduce_mean(tensor: torch.Tensor, state: CoreState) -> torch.Tensor:
    """Overwrites a tensor with the common estimate of its mean over all processes, for those without DDP.

    `state` is `CoreState([tensor], beta=0, ...)`, or one of a list of parameters whose numbers follow each other in the tensor, as in
    `parameters_to_vector`. It counts the calls as its steps. With a beta it is the mean of the momentum. Optimisers may train the same
    parameters between calls, with momenta of their own.

    >>> tensor = torch.arange(3.0)
    >>> all_reduce_mean(tensor, CoreState([tensor], beta=0))
    tensor([0., 1., 2.])
    """
    if not isinstance(tensor, torch.Tensor):
        raise ValueError(f"tensor: {type(tensor).__name__} is no torch.Tensor")
    if not isinstance(state, CoreState):
        raise ValueError(f"state: {type(state).__name__} is no CoreState")
    if tensor.numel() != state._size:
        raise ValueError(f"tensor: {tensor.numel()} numbers, and the state was made for {state._size}")
    if not tensor.is_floating_point():
        raise ValueError(f"tensor: {tensor.dtype} is no type of floating-point numbers, which a mean has")
    flat, places, start = tensor.contiguous().view(-1), [], 0
    for parameter in state._parameters:
        places.append((state._offsets[id(parameter)], start, parameter.numel()))
        start += parameter.numel()
    estimate = state._average([(flat, places)], "tensor")
    if estimate is None:
        return tensor.fill_(math.nan)
    ordered = [estimate[offset : offset + count] for offset, _, count in places]
    return tensor.copy_((ordered[0] if len(ordered) == 1 else torch.cat(ordered)).view(tensor.shape))


def _check_number(name: str, value: Any, fits: Callable[[Any], bool], wanted: str) -> None:
    """Refuses what is no such number, by its name."""
    if isinstance(value, bool) or not isinstance(value, numbers.Real) or not math.isfinite(value) or not fits(value):
        raise ValueError(f"{name}: {value!r} is not {wanted}")


def _scale_or_none(square: float) -> float:
    """A scale's square, or 0 where there is nothing to have a scale."""
    return square if square > LEAST_SQUARE else 0.0


def _in_words(index: int, parameter: torch.Tensor) -> str:
    return f"parameter {index} of shape {tuple(parameter.shape)}"


def _octets(message: bytes) -> torch.Tensor:
    """Bytes as a tensor. A shard without scalars has none, which torch.frombuffer does not take."""
    return torch.from_numpy(np.frombuffer(bytearray(message), np.uint8))
