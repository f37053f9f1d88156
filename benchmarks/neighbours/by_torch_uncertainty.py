"""torch-uncertainty: its routine for regression, on Lightning's trainer without logs, bars and checkpoints.

Members of the ensemble train in one loop, on the same batches, which is the fastest way that it offers.
"""

from __future__ import annotations

import logging
import warnings
from functools import partial
from typing import Any

import torch

from neighbours import torchvision_operators

torchvision_operators.declare()

from lightning import Trainer  # noqa: E402
from torch_uncertainty.losses import DistributionNLLLoss  # noqa: E402
from torch_uncertainty.methods import SWAG, deep_ensembles  # noqa: E402
from torch_uncertainty.methods import mc_dropout as wrapped_dropout  # noqa: E402
from torch_uncertainty.models.mlp import mlp  # noqa: E402
from torch_uncertainty.post_processing import LaplaceApprox  # noqa: E402
from torch_uncertainty.routines import RegressionRoutine  # noqa: E402
from torch_uncertainty.transforms import RepeatTarget  # noqa: E402

from neighbours.given import Fit, Given, Moments, Numbers, Predict, by_batches, moments  # noqa: E402
from neighbours.lightning_parts import QUIETLY, loader  # noqa: E402

torch.set_num_threads(1)
warnings.simplefilter("ignore")
logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)


def _trained(given: Given, model: Any, validated: bool = False, **routine: Any) -> RegressionRoutine:
    x, y = given.tensors
    settings = {"loss": torch.nn.MSELoss()} | routine
    adam = partial(torch.optim.Adam, lr=given.setting.lr)
    task = RegressionRoutine(model, output_dim=1, optim_recipe=lambda m: adam(m.parameters()), **settings)
    trainer = Trainer(max_epochs=given.setting.epochs, limit_val_batches=1.0 if validated else 0, **QUIETLY)
    aside = [torch.from_numpy(part) for part in given.aside]
    validation = loader((aside[0], aside[1][:, 0]), len(aside[0]), shuffle=False) if validated else None
    trainer.fit(task, loader((x, y[:, 0]), given.setting.batch_size), validation)
    return task.eval()


def _network(given: Given, **more: Any) -> Any:
    return mlp(given.x.shape[1], 1, [given.setting.units], **more)


def _sampled(task: RegressionRoutine, samples: int) -> Predict:
    def predict(x: Numbers) -> Moments:
        with torch.no_grad():
            return moments(task.model(torch.from_numpy(x)).reshape(samples, len(x)))

    return predict


def deep_ensemble(given: Given, seed: int) -> Predict:
    torch.manual_seed(seed)
    members = given.setting.members
    single = _network(given, dist_family="normal")
    model = deep_ensembles(single, members, task="regression", probabilistic=True)
    repeated = RepeatTarget(members)
    settings = {"is_ensemble": True, "dist_family": "normal", "loss": DistributionNLLLoss()}
    task = _trained(given, model, format_batch_fn=repeated, **settings)

    def predict(x: Numbers) -> Moments:
        with torch.no_grad():
            _, distribution = task.evaluation_forward(torch.from_numpy(x))
        return distribution.mean.numpy(), distribution.variance.numpy()

    return predict


def swag(given: Given, seed: int) -> Predict:
    torch.manual_seed(seed)
    setting = given.setting
    settings = {"max_num_models": setting.rank, "num_estimators": setting.samples}
    model = SWAG(_network(given), cycle_start=setting.burn_in - 1, cycle_length=1, **settings)
    return _sampled(_trained(given, model, validated=True), setting.samples)


def mc_dropout(given: Given, seed: int) -> Predict:
    torch.manual_seed(seed)
    setting = given.setting
    settings = {"task": "regression", "probabilistic": False}
    model = wrapped_dropout(_network(given, dropout_rate=setting.dropout), setting.samples, **settings)
    return _sampled(_trained(given, model), setting.samples)


def laplace(given: Given, seed: int) -> Predict:
    """Its wrapper of laplace-torch returns the mean alone, so that the variance is asked of the wrapped object."""
    torch.manual_seed(seed)
    x, y = given.tensors
    network = _trained(given, _network(given)).model
    approximation = LaplaceApprox("regression", network, weight_subset="all", hessian_struct="kron")
    approximation.la.sigma_noise = (network(x) - y).square().mean().sqrt().detach()
    approximation.fit(loader((x, y), 256, shuffle=False))
    return by_batches(approximation.la)


METHODS: dict[str, Fit] = {"deep ensemble": deep_ensemble, "SWAG": swag, "MC-dropout": mc_dropout, "Laplace": laplace}
