"""Files -> what was saved in them: a posterior, or a table's model."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from wherefrom.files.folders import Run
from wherefrom.posterior import store


def load(
    folder: str | Path,
    model: Any = None,
    data: Any = None,
    device: Any = "cpu",
    *,
    partial: bool = False,
    key: str | Path | None = None,
    **code: Any,
) -> Any:
    """Read what `posterior.save`, `model.save` or `wherefrom fit` wrote, and return it: a `Posterior` or a `Model`.

    folder: path of the saved posterior, model or run.
    model: the model factory of a posterior, or a dictionary of them if there are several families. No code is stored;
        only an `MLP` and a table's model need no factory.
    data: the training data of a posterior, which is not stored: needed to `extend`, to fit the noise of a part, or to
        sample the weights of a network with batch normalisation.
    device: the device of a posterior's networks (default "cpu").
    partial: leave out members whose files are damaged, with a warning (default False: an error).
    key: file with the key; the run must have been signed with it by `wherefrom sign` (default None: not checked).
    code: your own classes, needed only to `extend`: `optimisers` that are not torch's, `laws` that summarise
        trajectories, `variables`, and `augment`. (`likelihoods`, and laws that are neither points nor Gaussian, are
        needed to predict.)

    Every file is verified by its digest. A damaged file raises a `wf.FileError` that names it.
    """
    from wherefrom.tables import model as tables

    if model is None and data is None and tables.JSON in Run.open(folder):
        return tables.Model.load(folder, partial=partial, key=key)
    return store.load(folder, model, data, device, partial=partial, key=key, **code)
