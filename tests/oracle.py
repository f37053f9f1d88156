"""A training as anybody would write it: one nn.Module, torch.optim, batches one by one, explicit masks."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import contextmanager

import numpy as np
import torch
from torch import nn

import wherefrom as wf
from wherefrom.losses import Loss, SquaredError
from wherefrom.training import streams, workers
from wherefrom.training.cohort import Cohort, Examples, Member, Trained
from wherefrom.training.dropout import TrainingMasks
from wherefrom.training.network import Network

CPU = torch.device("cpu")


def cohort_of(
    model: Callable[[], nn.Module],
    examples: Examples,
    algorithm: wf.Algorithm,
    members: int = 3,
    epochs: int = 9,
    loss: Loss | None = None,
    collection=None,
    **each,
) -> Cohort:
    """Members with initial weights, orders and masks of their own; `each` has what else differs, a list for each."""
    torch.manual_seed(0)
    networks = [model().to(examples.x.dtype) for _ in range(members)]
    network = Network(networks[0], examples.x[:4])
    made = tuple(
        Member(
            network.theta(one),
            {**algorithm.settings, **{k: v[i] for k, v in each.get("settings", {}).items()}},
            streams.key(0, "order", i),
            streams.key(0, "masks", i),
            0,
            **{name: values[i] for name, values in each.items() if name != "settings"},
        )
        for i, one in enumerate(networks)
    )
    return Cohort(
        network,
        algorithm.name,
        algorithm.batch_size,
        epochs,
        loss or SquaredError(),
        made,
        (examples,),
        collection,
    )


def train(cohort: Cohort, engine: str, threads: int = 1) -> list[Trained]:
    return workers.train_cohorts([cohort], CPU, threads, lambda _: None, engine)[0]


@contextmanager
def given_masks(masks: list[torch.Tensor]):
    """Dropout takes these masks, one after another, instead of drawing its own."""
    real = nn.functional.dropout, nn.functional.dropout1d
    nn.functional.dropout = nn.functional.dropout1d = lambda h, *args, **kwargs: h * masks.pop(0)
    try:
        yield
    finally:
        nn.functional.dropout, nn.functional.dropout1d = real


def trained_alone(model: Callable[[], nn.Module], cohort: Cohort, member: Member) -> torch.Tensor:
    """Where a member's training ends when it is written by hand."""
    x, y, weights = cohort.tables[member.table]
    network = model().to(x.dtype).train()
    with torch.no_grad():
        own = dict(network.named_parameters()) | dict(network.named_buffers())
        for name, tensor in cohort.network.layout.views(member.theta0).items():
            own[name].copy_(tensor)
    settings = dict(member.settings)
    if cohort.optimiser == "sgd":
        settings["nesterov"] = bool(settings["nesterov"])
        optimiser = torch.optim.SGD(network.parameters(), **settings)
    else:
        betas = (settings.pop("beta1"), settings.pop("beta2"))
        kind = torch.optim.Adam if cohort.optimiser == "adam" else torch.optim.AdamW
        optimiser = kind(network.parameters(), betas=betas, **settings)
    masks = [
        TrainingMasks(
            site,
            [rate],
            np.array([streams.key(member.masks, "site", i)], dtype=np.uint64),
            cohort.batch_size,
            CPU,
            x.dtype,
        )
        for i, (site, rate) in enumerate(zip(cohort.network.sites, cohort.rates(member), strict=True))
    ]
    steps = cohort.steps_per_epoch
    for epoch in range(cohort.epochs):
        order = streams.permutations(np.array([member.order], dtype=np.uint64), epoch, len(x))[0]
        for index in range(steps):
            batch = torch.from_numpy(order[cohort.batch_size * index :][: cohort.batch_size].copy())
            step = epoch * steps + index
            if member.schedule:
                factor = float(member.schedule(np.array([step / (cohort.epochs * steps)]))[0])
                optimiser.param_groups[0]["lr"] = member.settings["lr"] * factor
            optimiser.zero_grad()
            with given_masks([mask.drop(step)[0, : len(batch)].clone() for mask in masks]):
                outputs = network(x[batch]).reshape(len(batch), -1)
            row_weights = None if weights is None else weights[batch]
            cohort.loss(outputs, y[batch], row_weights).backward()
            optimiser.step()
            for mask in masks:
                mask.restore()
    return cohort.network.theta(network)
