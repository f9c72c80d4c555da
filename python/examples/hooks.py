"""Baselines of the literature as communication hooks for DistributedDataParallel, each on the gradient or on the momentum.

Every process encodes its own vector, the codes are gathered by all, and the mean of what they say takes the gradient's place. The first step
is sent as it is: DDP lays its bucket out anew after it.
"""

import numpy as np
import torch
import torch.distributed as dist

from corewire import Sketch


class TopK:
    """The largest entries with their places; what is left out is added to the next vector. Stich and others 2018."""

    feedback = True

    def __init__(self, size, ratio, seed):
        self.size, self.count = size, max(1, round(size / ratio))

    def encode(self, vector, step):
        places = vector.abs().topk(self.count, sorted=False).indices
        return torch.cat([places.int().view(torch.uint8), vector[places].view(torch.uint8)])

    def decode(self, code, step, process):
        places, values = code.view(2, -1)
        vector = torch.zeros(self.size)
        vector[places.view(torch.int32).long()] = values.view(torch.float32)
        return vector


class Qsgd:
    """Minus one, zero or one times the norm of 512 entries, rounded at random: two bits an entry. Alistarh and others 2017, one level."""

    feedback, BUCKET = False, 512

    def __init__(self, size, ratio, seed):
        self.size = size
        self.random = torch.Generator().manual_seed(seed + 1000 * dist.get_rank())

    def encode(self, vector, step):
        rows = torch.nn.functional.pad(vector, (0, -self.size % self.BUCKET)).view(-1, self.BUCKET)
        norms = rows.norm(dim=1, keepdim=True)
        shares = rows / norms.clamp_min(1e-30)
        levels = (torch.rand(shares.shape, generator=self.random) < shares.abs()) * shares.sign()
        fours = (levels + 1).to(torch.uint8).view(-1, 4)
        packed = fours[:, 0] | fours[:, 1] << 2 | fours[:, 2] << 4 | fours[:, 3] << 6
        return torch.cat([norms.view(-1).view(torch.uint8), packed])

    def decode(self, code, step, process):
        rows = -(-self.size // self.BUCKET)
        norms, packed = code[: 4 * rows].view(torch.float32), code[4 * rows :]
        levels = torch.stack([packed >> shift & 3 for shift in (0, 2, 4, 6)], 1).float() - 1
        return (levels.view(-1, self.BUCKET) * norms[:, None]).view(-1)[: self.size]


class Eden:
    """The signs of the vector under random rows of a Hadamard matrix, one row for `ratio` entries, and one scale that makes them
    unbiased. Vargaftik and others 2022, one bit, on the rows of CORE's sketch."""

    feedback = False

    def __init__(self, size, ratio, seed):
        self.sketch = Sketch(size, max(1, round(size / ratio)), "hadamard", seed)
        # Rows of its own for each process: errors then average out.
        self.processes, self.own = dist.get_world_size(), dist.get_rank()

    def encode(self, vector, step):
        scalars = self.sketch.project(step * self.processes + self.own, vector.numpy())
        scale = np.float32((scalars**2).sum() / max(np.abs(scalars).sum(), 1e-30))
        return torch.from_numpy(np.concatenate([scale.reshape(1).view(np.uint8), np.packbits(scalars > 0)]))

    def decode(self, code, step, process):
        bits = np.unpackbits(code.numpy()[4:])[: self.sketch.budget].astype(np.float32)
        scale = code.numpy()[:4].view(np.float32)[0]
        return torch.from_numpy(self.sketch.reconstruct(step * self.processes + process, (2 * bits - 1) * scale))


CODES = {"topk": TopK, "qsgd": Qsgd, "eden": Eden}


class Gathered:
    """The state of `gathered_hook`: a code, its memory, and the bytes that this process handed to others."""

    def __init__(self, name, ratio, beta, seed):
        self.make = lambda size: CODES[name](size, ratio, seed)
        self.beta, self.step, self.sent_bytes = beta, 0, 0
        self.code = self.momentum = self.error = None

    def mean(self, gradient):
        processes = dist.get_world_size()
        self.step += 1
        if self.step == 1:
            dist.all_reduce(gradient)
            return gradient / processes
        if self.code is None:
            self.code, self.momentum, self.error = self.make(len(gradient)), torch.zeros_like(gradient), torch.zeros_like(gradient)
        vector = self.momentum.mul_(self.beta).add_(gradient)
        vector = vector + self.error if self.code.feedback else vector
        own = self.code.encode(vector, self.step)
        codes = [torch.empty_like(own) for _ in range(processes)]
        dist.all_gather(codes, own)
        self.sent_bytes += (processes - 1) * len(own)
        if self.code.feedback:
            self.error = vector - self.code.decode(own, self.step, dist.get_rank())
        decoded = [self.code.decode(code, self.step, process) for process, code in enumerate(codes)]
        return torch.stack(decoded).mean(0)


class Signs:
    """Means of signs through a sharded hub: each process averages its shard of everybody's signs, and sends the signs of that to all. What
    either rounding left out is added to the next vector."""

    def __init__(self, size):
        self.size, self.processes = size, dist.get_world_size()
        shard = -(-size // (8 * self.processes)) * 8
        self.own_error, self.hub_error = torch.zeros(self.processes, shard), torch.zeros(1, shard)

    def mean(self, vector):
        """The mean, and the bytes that this process handed to others."""
        padded = torch.nn.functional.pad(vector, (0, self.own_error.numel() - self.size))
        codes = self._encode(padded.view(self.own_error.shape), self.own_error)
        received, replies = torch.empty_like(codes), torch.empty_like(codes)
        dist.all_to_all_single(received, codes)
        dist.all_gather_into_tensor(replies, self._encode(self._decode(received).mean(0, keepdim=True), self.hub_error))
        return self._decode(replies).view(-1)[: self.size], 2 * (self.processes - 1) * codes.shape[1]

    def _encode(self, rows, error):
        """A scale and the signs of each row; `error` becomes what they leave out."""
        error += rows
        scales = error.abs().mean(1, keepdim=True)
        signs = torch.from_numpy(np.packbits(error.numpy() > 0, axis=1))
        codes = torch.cat([scales.view(torch.uint8), signs], 1)
        error -= self._decode(codes)
        return codes

    def _decode(self, codes):
        signs = torch.from_numpy(np.unpackbits(codes[:, 4:].numpy(), axis=1)).float()
        return (2 * signs - 1) * codes[:, :4].clone(memory_format=torch.contiguous_format).view(torch.float32)


class OneBitAdam:
    """1-bit Adam (Tang and others 2021): Adam on the exact mean for `warm_up` steps; from there on second moments are as they are, and the
    momentum travels as signs. The gradient becomes Adam's step, for an optimiser without a momentum."""

    def __init__(self, warm_up, beta=0.9, second=0.999, epsilon=1e-8):
        self.warm_up, self.beta, self.second, self.epsilon = warm_up, beta, second, epsilon
        self.step, self.sent_bytes = 0, 0
        self.momentum = self.squares = self.signs = None

    def update(self, gradient):
        self.step += 1
        if self.step <= self.warm_up:
            processes = dist.get_world_size()
            dist.all_reduce(gradient)
            gradient = gradient / processes
            self.sent_bytes += 8 * (processes - 1) * len(gradient) // processes
        if self.step == 1:
            return gradient / (gradient.abs() + self.epsilon)
        if self.momentum is None:
            self.momentum, self.squares = torch.zeros_like(gradient), torch.zeros_like(gradient)
        self.momentum.lerp_(gradient, 1 - self.beta)
        # The first step counts for nothing here.
        taken = self.step - 1
        if self.step <= self.warm_up:
            self.squares.mul_(self.second).addcmul_(gradient, gradient, value=1 - self.second)
            self.root = (self.squares / (1 - self.second**taken)).sqrt_().add_(self.epsilon)
        else:
            self.signs = self.signs or Signs(len(gradient))
            self.momentum, sent = self.signs.mean(self.momentum)
            self.sent_bytes += sent
        return self.momentum / self.root / (1 - self.beta**taken)


def one_bit_adam_hook(state: OneBitAdam, bucket: dist.GradBucket) -> torch.futures.Future[torch.Tensor]:
    """Needs DDP to have one bucket."""
    future = torch.futures.Future()
    future.set_result(state.update(bucket.buffer()))
    return future


def gathered_hook(state: Gathered, bucket: dist.GradBucket) -> torch.futures.Future[torch.Tensor]:
    """Needs DDP to have one bucket."""
    future = torch.futures.Future()
    future.set_result(state.mean(bucket.buffer()))
    return future
