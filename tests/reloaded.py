"""A value as it comes back from a file, through JSON text and tensors."""

import json
from typing import Any

import torch

from wherefrom.files.codec import pack, unpack
from wherefrom.files.stand_in import Code


def packed(value: Any, code: Code | None = None) -> tuple[Any, dict[str, torch.Tensor]]:
    """JSON as it is read again, and the tensors that were put aside."""
    tensors: dict[str, torch.Tensor] = {}
    return json.loads(json.dumps(pack(value, tensors, code=code), allow_nan=False)), tensors


def reloaded(value: Any, code: Code | None = None, **given: list[type]) -> Any:
    document, tensors = packed(value, code)
    return unpack(document, tensors.__getitem__, given, code=code)
