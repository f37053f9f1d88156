"""Parts of Lightning's way to train that two neighbours need."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from torch import Tensor
from torch.utils.data import DataLoader, Dataset, TensorDataset

QUIETLY = {
    "accelerator": "cpu",
    "devices": 1,
    "logger": False,
    "enable_checkpointing": False,
    "enable_progress_bar": False,
    "enable_model_summary": False,
    "num_sanity_val_steps": 0,
}


class Named(Dataset):
    """Rows as dictionaries."""

    def __init__(self, x: Tensor, y: Tensor) -> None:
        self.x, self.y = x, y

    def __len__(self) -> int:
        return len(self.x)

    def __getitem__(self, row: int) -> dict[str, Tensor]:
        return {"input": self.x[row], "target": self.y[row]}


def loader(rows: Sequence[Tensor], batch_size: int, shuffle: bool = True, named: bool = False) -> DataLoader[Any]:
    """Batches of rows, the last one short."""
    return DataLoader(Named(*rows) if named else TensorDataset(*rows), batch_size, shuffle=shuffle)
