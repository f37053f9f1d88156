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

    model: the factory that a posterior was trained with, or a dictionary of them where families were marginalised. No
        code is stored, so that only an `MLP` needs none; a table's model needs none.
    data: the training data of a posterior, which is not stored either: to `extend`, to fit the noise of a part, or to
        sample the weights of a network with batch norm.
    device: where a posterior's networks are to run (default "cpu").
    partial: leave members out whose files are damaged, with a warning (default False: they are an error).
    key: file with the key by which `wherefrom sign` must have signed the run (default None: any run is read).
    code: classes of your own, which are needed only to `extend`: `optimisers` that are not torch's, `laws` that
        summarise trajectories, `variables`, and `augment`, if that was code. (Laws of a kind of your own, neither
        points nor Gaussian, and `likelihoods` are needed to predict.)

    Every file is verified by its digest; whatever is wrong with one is a `wf.FileError` that names it.
    """
    from wherefrom.tables import model as tables

    if model is None and data is None and tables.JSON in Run.open(folder):
        return tables.Model.load(folder, partial=partial, key=key)
    return store.load(folder, model, data, device, partial=partial, key=key, **code)
