"""The loss along straight lines between thetas that one choice sends apart: the paper's first figure for any network.

    L(theta_a + s (theta_b - theta_a))        s = 0: one member;  s = 1: one that differs in a single variable

Where the line crosses a barrier, that variable leads to another valley. For t, both thetas are samples of one member.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from wherefrom.posterior.groups import Group, groups, inputs, refreshing
from wherefrom.posterior.held_out import like_training
from wherefrom.predictive.batch_norm import Sampled
from wherefrom.predictive.monte_carlo import Thetas

if TYPE_CHECKING:
    from wherefrom.posterior.posterior import Posterior

POSITIONS = np.linspace(-0.25, 1.25, 31)  # s


def losses_along_lines(posterior: Posterior, data: Any = None) -> dict[str, np.ndarray]:
    """Return the loss at each of `POSITIONS`, by variable.

    data: (x, y) whose loss it is (default: the training rows).
    """
    if data is None and posterior.rows is None:
        raise ValueError("a run holds no data: give rows whose loss to draw, as data=(x, y)")
    rows = like_training(posterior, posterior.rows if data is None else data)
    x, y = inputs(posterior, rows.x), posterior.scaler.y(rows.y, posterior.dtype).to(posterior.device)
    likelihood = posterior.training.likelihood
    loss, weights = likelihood.loss_for(posterior.scaler), likelihood.row_weights(rows)
    losses = {}
    for number, (name, (group, ends)) in enumerate(_lines(posterior).items()):
        way = torch.from_numpy(POSITIONS).to(ends)[:, None]
        thetas = torch.lerp(ends[:1], ends[1:], way)
        if (refresh := refreshing(posterior, group)) is not None:
            law = group.thetas[0].law
            thetas = refresh(group.network, thetas, [Sampled(law, -1 - number, at) for at in range(len(thetas))])
        with torch.no_grad():
            outputs = group.network.answers(thetas, group.seen(x), []).clone()
            losses[name] = np.array([float(loss(each, y, weights)) for each in outputs])
    if not losses:
        raise ValueError("no two members differ in one variable alone, and t is not marginalised: there is no line")
    return losses


def _lines(posterior: Posterior) -> dict[str, tuple[Group, torch.Tensor]]:
    """Return for each variable two thetas of one network that nothing else tells apart."""
    lines: dict[str, tuple[Group, torch.Tensor]] = {}
    for group in groups(posterior):
        thetas = {
            number: Thetas(theta, posterior.seed) for number, theta in zip(group.numbers, group.thetas, strict=True)
        }
        first = thetas[group.numbers[0]]
        if first.member.law.is_random and posterior.design.iterations is not None:
            lines.setdefault("t", (group, first.get(np.array([0, 1]))))
        labels = {number: posterior.mixture[number].run.labels for number in group.numbers}
        for number in group.numbers[1:]:
            different = [name for name, label in labels[number].items() if label != labels[group.numbers[0]][name]]
            if len(different) == 1:
                ends = torch.cat([each.get(np.array([0])) for each in (first, thetas[number])])
                lines.setdefault(different[0], (group, ends))
    return lines
