"""lightning-uq-box: its Lightning modules, on a trainer without logs, bars and checkpoints.

Its ensemble takes checkpoints of trained members. Its SWAG starts from a trained network, and goes on by SGD. Its
Laplace is a test run of Lightning around laplace-torch, which takes part itself.
"""

from __future__ import annotations

import logging
import tempfile
import warnings
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import nn

from neighbours import torchvision_operators

torchvision_operators.declare()

from lightning import Trainer  # noqa: E402
from lightning_uq_box import uq_methods as methods  # noqa: E402

from neighbours.given import Fit, Given, Moments, Numbers, Predict  # noqa: E402
from neighbours.lightning_parts import QUIETLY, loader  # noqa: E402

torch.set_num_threads(1)
warnings.simplefilter("ignore")
logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)


def _train(given: Given, module: Any, epochs: int) -> Trainer:
    trainer = Trainer(max_epochs=epochs, limit_val_batches=0, **QUIETLY)
    trainer.fit(module, loader(given.tensors, given.setting.batch_size, named=True))
    return trainer


def _predicted(module: Any) -> Predict:
    def predict(x: Numbers) -> Moments:
        answer = module.predict_step(torch.from_numpy(x))
        return answer["pred"].detach().numpy(), answer["pred_uct"].detach().square().numpy()

    return predict


def _adam(given: Given) -> Any:
    return partial(torch.optim.Adam, lr=given.setting.lr)


def deep_ensemble(given: Given, seed: int) -> Predict:
    torch.manual_seed(seed)
    folder = tempfile.mkdtemp()
    members = []
    for k in range(given.setting.members):
        member = methods.MVERegression(given.network(2), burnin_epochs=0, optimizer=_adam(given))
        path = str(Path(folder) / f"{k}.ckpt")
        _train(given, member, given.setting.epochs).save_checkpoint(path)
        members.append({"base_model": member, "ckpt_path": path})
    return _predicted(methods.DeepEnsembleRegression(members))


def swag(given: Given, seed: int) -> Predict:
    torch.manual_seed(seed)
    setting = given.setting
    network = given.network()
    _train(given, methods.DeterministicRegression(network, nn.MSELoss(), optimizer=_adam(given)), setting.burn_in)
    steps = -(-len(given.x) // setting.batch_size)
    settings = {"num_mc_samples": setting.samples, "swag_lr": setting.lr, "loss_fn": nn.MSELoss()}
    module = methods.SWAGRegression(network, max_swag_snapshots=setting.rank, snapshot_freq=steps, **settings)
    _train(given, module, setting.epochs - setting.burn_in)
    return _predicted(module)


def mc_dropout(given: Given, seed: int) -> Predict:
    torch.manual_seed(seed)
    setting = given.setting
    network = given.network(dropout=setting.dropout)
    module = methods.MCDropoutRegression(network, setting.samples, nn.MSELoss(), optimizer=_adam(given))
    _train(given, module, setting.epochs)
    return _predicted(module)


METHODS: dict[str, Fit] = {"deep ensemble": deep_ensemble, "SWAG": swag, "MC-dropout": mc_dropout}
