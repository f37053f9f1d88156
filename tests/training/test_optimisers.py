"""Every step rule against torch.optim, member by member, with different settings in one group."""

import pytest
import torch

from wherefrom.training.optimisers import OPTIMISERS

MEMBERS, SIZE, STEPS = 3, 40, 200

CASES = [
    ("sgd", [dict(lr=0.1), dict(lr=0.01, weight_decay=0.1), dict(lr=0.05)]),
    ("sgd", [dict(lr=0.1, momentum=0.9), dict(lr=0.02, momentum=0.5, weight_decay=0.01), dict(lr=0.03, momentum=0.99)]),
    ("sgd", [dict(lr=0.1, momentum=0.9, nesterov=True), dict(lr=0.02, momentum=0.5), dict(lr=0.03)]),
    ("adam", [dict(lr=0.1), dict(lr=0.001, weight_decay=0.1), dict(lr=0.01, betas=(0.8, 0.95), eps=1e-3)]),
    ("adamw", [dict(lr=0.1), dict(lr=0.001, weight_decay=0.5), dict(lr=0.01, betas=(0.5, 0.9))]),
]
REFERENCE = {"sgd": torch.optim.SGD, "adam": torch.optim.Adam, "adamw": torch.optim.AdamW}


@pytest.mark.parametrize(("name", "settings"), CASES)
def test_equals_torch_optim(name: str, settings: list[dict]):
    generator = torch.Generator().manual_seed(3)
    start = torch.randn(MEMBERS, SIZE, generator=generator, dtype=torch.float64)
    target = torch.randn(MEMBERS, SIZE, generator=generator, dtype=torch.float64)
    noise = torch.randn(STEPS, MEMBERS, SIZE, generator=generator, dtype=torch.float64)

    def gradient(theta: torch.Tensor, k: slice | int, step: int) -> torch.Tensor:
        return (theta - target[k]) + noise[step, k]

    theta = start.clone()
    optimiser = OPTIMISERS[name]
    state = {buffer: torch.zeros_like(theta) for buffer in optimiser.buffers}
    own = []
    for given in settings:
        given = dict(given)
        if "betas" in given:
            given["beta1"], given["beta2"] = given.pop("betas")
        own.append(optimiser.defaults | given)
    per_member = {s: torch.tensor([[float(m[s])] for m in own], dtype=torch.float64) for s in own[0]}
    for step in range(STEPS):
        optimiser.step(theta, gradient(theta, slice(None), step), state, per_member, step + 1)

    for k, given in enumerate(settings):
        parameter = torch.nn.Parameter(start[k].clone())
        reference = REFERENCE[name]([parameter], **given)
        for step in range(STEPS):
            parameter.grad = gradient(parameter.detach(), k, step)
            reference.step()
        torch.testing.assert_close(theta[k], parameter.detach(), rtol=0, atol=1e-10)
