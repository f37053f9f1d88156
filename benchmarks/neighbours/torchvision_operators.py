"""torchvision of the index, beside a build of torch that its compiled operators were not made for.

Some neighbours import torchvision, which then ends in an error for want of two operators that no table needs. They are
declared here, without code, only where the import fails.
"""

from __future__ import annotations

import torch

_SIGNATURES = (
    "nms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor",
    "qnms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor",
)
_declared: list[torch.library.Library] = []  # a library that is collected takes its operators along


def declare() -> None:
    """Make torchvision importable."""
    try:
        import torchvision  # noqa: F401
    except RuntimeError:
        library = torch.library.Library("torchvision", "FRAGMENT")
        for signature in _SIGNATURES:
            library.define(signature)
        _declared.append(library)
    except ImportError:
        pass
