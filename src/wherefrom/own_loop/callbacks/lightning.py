"""A recorder as a callback of Lightning's Trainer; needs `wherefrom[lightning]`, or pytorch-lightning."""

from __future__ import annotations

import importlib
import math
import sys
from typing import Any

from wherefrom.own_loop.callbacks.recording import Recording

_PACKAGES = ("lightning.pytorch", "pytorch_lightning")  # one library under two names, each with its own classes


class LightningRecorder(Recording):
    """Records a training of Lightning's: `Trainer(callbacks=[wf.callbacks.LightningRecorder(wf.SWAG(rank=20))])`.

    `start` and `every` are those of `wf.Iterations`: from which fraction of the epochs on (or after how many of them),
    and once an "epoch" or every n steps of the optimiser. `law` can also be a Recorder, to go on with after an
    interruption. When training is over, `callback.recorder` is a member for `wf.Posterior.from_members`.
    Of several processes the first records, and in a `fast_dev_run` none.
    """

    @staticmethod
    def _library() -> type:
        """Return the class of the package that the user has imported, or else the one that is there."""
        for package in sorted(_PACKAGES, key=lambda package: package not in sys.modules):
            try:
                callback_class: type = importlib.import_module(package).Callback
            except ModuleNotFoundError as error:
                if error.name not in ("lightning", *_PACKAGES):
                    raise
            else:
                return callback_class
        message = "LightningRecorder needs Lightning: pip install 'wherefrom[lightning]'"
        raise ModuleNotFoundError(message, name="lightning")

    def on_train_start(self, trainer: Any, pl_module: Any) -> None:
        self._seen = trainer.global_step
        if self._records(trainer):
            batches, together = trainer.num_training_batches, trainer.accumulate_grad_batches
            steps_per_epoch = -(-batches // together) if math.isfinite(batches) else math.inf
            steps, epochs = map(_known, (trainer.estimated_stepping_batches, trainer.max_epochs))
            if math.isfinite(steps) and math.isfinite(batches):
                epochs = math.ceil(steps / steps_per_epoch)
            self._begin(pl_module, steps, steps_per_epoch, epochs)

    def on_train_batch_end(self, trainer: Any, pl_module: Any, outputs: Any, batch: Any, batch_idx: int) -> None:
        if self._records(trainer) and trainer.global_step > self._seen:  # a step may take the gradients of some batches
            self._step_ended(pl_module, trainer.global_step)
        self._seen = trainer.global_step

    def on_train_epoch_end(self, trainer: Any, pl_module: Any) -> None:
        if self._records(trainer):
            self._epoch_ended(pl_module, trainer.current_epoch + 1)

    def on_train_end(self, trainer: Any, pl_module: Any) -> None:
        if self._records(trainer):
            self._end(pl_module)

    def _records(self, trainer: Any) -> bool:
        return bool(trainer.is_global_zero) and not trainer.fast_dev_run


def _known(number: float | None) -> float:
    """Lightning has -1, or nothing, for what has no end."""
    return math.inf if number is None or number < 0 else number
