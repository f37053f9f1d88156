"""Recorders that trainers of other libraries call: each is imported when it is first used, with its library.

from wherefrom.own_loop.callbacks import LightningRecorder, HuggingFaceRecorder      # or wf.callbacks. ...
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from wherefrom.own_loop.callbacks.hugging_face import HuggingFaceRecorder
    from wherefrom.own_loop.callbacks.lightning import LightningRecorder

__all__ = ["HuggingFaceRecorder", "LightningRecorder"]

_HOMES = {"LightningRecorder": "lightning", "HuggingFaceRecorder": "hugging_face"}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_HOMES[name]}"), name)


def __dir__() -> list[str]:
    return sorted(__all__)
