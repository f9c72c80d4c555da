"""Looks at optimisers and gradients on behalf of a CoreState. It knows no messages."""

import functools
from collections.abc import Iterable
from typing import Any

import torch
from torch.optim.optimizer import register_optimizer_step_post_hook, register_optimizer_step_pre_hook

# Parameters whose gradients are looked at, the smallest ones: any of them tells of a mistake.
WATCHED = 8


class Guard:
    """Looks at optimisers and gradients for mistakes with which something else would be trained in silence.

    Nothing of the state is in it, so that a state which nobody holds any more is gone, and its guard with it. It looks at nothing until
    `begin`: whoever averages tensors without the hook may train them by any optimiser.
    """

    def __init__(self, ours: set[int], frozen: dict[int, str]) -> None:
        self.ours, self.any_exchange, self.watching, self.begun = ours, False, False, False
        # What was frozen when the state was made, in words.
        self.frozen = frozen
        # Of the watched parameters whose gradients have grown since the last exchange: whether they began at zero, and not at an estimate.
        self.own: dict[int, bool] = {}
        self.handles: list[Any] = []

    def begin(self) -> None:
        """Looks at all optimisers from here on."""
        if not self.begun:
            self.begun = True
            self.handles += [register_optimizer_step_pre_hook(self._before_step), register_optimizer_step_post_hook(self._after_step)]

    def close(self) -> None:
        self.watching = self.begun = True
        for handle in self.handles:
            handle.remove()

    def watch(self, parameters: Iterable[torch.Tensor]) -> None:
        """Looks at the gradients of the smallest ones from here on."""
        self.watching = True
        for parameter in sorted(parameters, key=torch.Tensor.numel)[:WATCHED]:
            self.handles.append(parameter.register_hook(functools.partial(self._before_accumulation, parameter)))

    def exchanged(self) -> None:
        self.any_exchange = True
        self.own.clear()

    def refuse_mixtures(self) -> None:
        """Gradients of this process on top of an estimate would enter the momentum with the estimate, which is in it already."""
        if False in self.own.values():
            raise RuntimeError(
                "a backward pass has added to gradients that were exchanged already: put all but the last backward pass of a step into "
                "ddp.no_sync(), and zero the gradients after the step"
            )

    def _before_accumulation(self, parameter: torch.Tensor, _: torch.Tensor) -> None:
        key = id(parameter)
        if not self.own.get(key):
            self.own[key] = parameter.grad is None or not bool(parameter.grad.any())

    def _concerns(self, optimizer: torch.optim.Optimizer) -> list[dict[str, Any]]:
        return [group for group in optimizer.param_groups if any(id(parameter) in self.ours for parameter in group["params"])]

    def _before_step(self, optimizer: torch.optim.Optimizer, *_: Any) -> None:
        if any(group.get("momentum", 0) or "betas" in group for group in self._concerns(optimizer)):
            raise ValueError(
                f"{type(optimizer).__name__} adds a momentum of its own to parameters whose momentum is in a CoreState: "
                "pass it through state.optimizer(...) and step what that returns"
            )
        self._refuse_unfrozen(optimizer)

    def _refuse_unfrozen(self, optimizer: torch.optim.Optimizer) -> None:
        for parameter in (parameter for group in optimizer.param_groups if self.frozen for parameter in group["params"]):
            if id(parameter) in self.frozen and parameter.requires_grad and parameter.grad is not None:
                raise RuntimeError(
                    f"{self.frozen[id(parameter)]} was frozen when the CoreState was made and is trained now, so that its gradients are "
                    "not exchanged and processes would drift apart: call state.close(), and make DistributedDataParallel and CoreState "
                    "anew after unfreezing; or let it require its gradient before both are made"
                )

    # After the step, because a closure exchanges within it.
    def _after_step(self, optimizer: torch.optim.Optimizer, *_: Any) -> None:
        self._refuse_unfrozen(optimizer)
        if (not self.any_exchange or True in self.own.values()) and self._concerns(optimizer):
            raise RuntimeError(
                f"{type(optimizer).__name__} has stepped on gradients that were never exchanged: call "
                "ddp.register_comm_hook(state, core_hook) before the first step, and ddp itself, not the model in it; "
                "state.close() is for those who train without the hook"
            )
