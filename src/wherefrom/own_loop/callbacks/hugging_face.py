"""A recorder as a callback of Hugging Face's Trainer; needs `wherefrom[huggingface]`."""

from __future__ import annotations

import importlib
import math
from typing import Any

from wherefrom.own_loop.callbacks.recording import Recording


class HuggingFaceRecorder(Recording):
    """Records a training of Hugging Face's: `Trainer(..., callbacks=[wf.callbacks.HuggingFaceRecorder(wf.SWAG())])`.

    `start` and `every` are those of `wf.Iterations`: from which fraction of the epochs on (or after how many of them),
    and once an "epoch" or every n steps of the optimiser. `law` can also be a Recorder, to go on with after an
    interruption. When training is over, `callback.recorder` is a member for `wf.Posterior.from_members`.
    Of several processes, the first records.
    """

    @staticmethod
    def _library() -> type:
        """Return the class of its callbacks."""
        try:
            callback_class: type = importlib.import_module("transformers").TrainerCallback
        except ModuleNotFoundError as error:
            if error.name != "transformers":
                raise
            message = "HuggingFaceRecorder needs transformers: pip install 'wherefrom[huggingface]'"
            raise ModuleNotFoundError(message, name="transformers") from None
        return callback_class

    def on_train_begin(self, args: Any, state: Any, control: Any, **others: Any) -> None:
        if state.is_world_process_zero:
            try:
                steps_per_epoch = -(-len(others["train_dataloader"]) // args.gradient_accumulation_steps)
                epochs = math.ceil(state.max_steps / steps_per_epoch)
            except TypeError:  # the data has no length
                steps_per_epoch = epochs = math.inf
            self._begin(others["model"], state.max_steps, steps_per_epoch, epochs)

    def on_step_end(self, args: Any, state: Any, control: Any, **others: Any) -> None:
        if state.is_world_process_zero:
            self._step_ended(others["model"], state.global_step)

    def on_epoch_end(self, args: Any, state: Any, control: Any, **others: Any) -> None:
        if state.is_world_process_zero:
            self._epoch_ended(others["model"], math.ceil(state.epoch - 1e-6))

    def on_train_end(self, args: Any, state: Any, control: Any, **others: Any) -> None:
        if state.is_world_process_zero:
            self._end(others["model"])
