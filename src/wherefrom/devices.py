"""Free memory of torch's devices, and copies for which nobody waits."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

_SHARES_MEMORY = ("cpu", "mps")  # with the host: nothing is gained by pinned memory


def free_bytes(device: torch.device) -> int | None:
    """Return the memory of a device that is free, or kept by torch for later use; None if it is not known."""
    if device.type == "cpu":
        return None
    module: Any = torch.get_device_module(device)
    if device.type == "mps":
        return max(0, int(module.recommended_max_memory()) - int(module.current_allocated_memory()))
    if not hasattr(module, "mem_get_info"):
        return None
    free = int(module.mem_get_info(device)[0])
    reserved, allocated = (getattr(module, name, lambda _: 0) for name in ("memory_reserved", "memory_allocated"))
    return free + max(0, int(reserved(device)) - int(allocated(device)))


def fits(size: int, device: torch.device) -> bool:
    """Return True if this many bytes leave at least half of a device's free memory to others, or it is not known."""
    free = free_bytes(device)
    return free is None or size <= free // 2


def can_pin(device: torch.device) -> bool:
    """Return True if memory can be pinned for a device, which then copies it while the host goes on."""
    return device.type not in _SHARES_MEMORY


def sent(tensor: Tensor, device: torch.device) -> Tensor:
    """Return a tensor of main memory on a device; where memory can be pinned, nobody waits for the copy.

    Pinned memory that is given back is not used again before its copy has ended: torch sees to that.
    """
    return tensor.pin_memory().to(device, non_blocking=True) if can_pin(device) else tensor.to(device)


def wait_for(device: torch.device) -> None:
    """Wait until a device has done all that it was given, copies included."""
    if device.type != "cpu":
        torch.get_device_module(device).synchronize(*([] if device.type == "mps" else [device]))  # MPS is but one
