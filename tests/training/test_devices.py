"""Free memory of devices, and the GPUs of a cluster; the rest is tested on a pretended device."""

from types import SimpleNamespace

import pytest
import torch

from wherefrom import devices
from wherefrom.training.executors import cluster

CPU = torch.device("cpu")


def test_main_memory_has_no_limit_and_is_not_pinned():
    assert devices.free_bytes(CPU) is None
    assert devices.fits(10**18, CPU)
    assert not devices.can_pin(CPU)
    x = torch.ones(2)
    assert devices.sent(x, CPU) is x


@pytest.mark.parametrize(
    ("kind", "module", "free"),
    [
        ("cuda", SimpleNamespace(mem_get_info=lambda _: (100, 500)), 100),
        ("cuda", SimpleNamespace(mem_get_info=lambda _: (100, 500), memory_reserved=lambda _: 30), 130),
        (
            "cuda",
            SimpleNamespace(
                mem_get_info=lambda _: (100, 500), memory_reserved=lambda _: 30, memory_allocated=lambda _: 20
            ),
            110,
        ),
        ("mps", SimpleNamespace(recommended_max_memory=lambda: 90, current_allocated_memory=lambda: 20), 70),
        ("xpu", SimpleNamespace(), None),
    ],
)
def test_free_memory_is_what_torch_can_still_give(monkeypatch, kind, module, free):
    monkeypatch.setattr(torch, "get_device_module", lambda _: module)
    device = torch.device(kind)
    assert devices.free_bytes(device) == free
    if free is not None:
        assert devices.fits(free // 2, device)
        assert not devices.fits(free // 2 + 1, device)


@pytest.mark.parametrize(
    ("cpus", "gpus", "processes", "room"),
    [
        (1, 0, 1, 16),
        (4, 0, 1, 4),
        (1, 1, 1, 3),
        (1, 0.5, 1, 6),
        (8, 1, 1, 2),
        (32, 0, 1, 1),
        (1, 0, 4, 4),
        (1, 1, 2, 1),
    ],
)
def test_a_cluster_has_room_by_its_cores_and_gpus(monkeypatch, cpus, gpus, processes, room):
    ray = SimpleNamespace(cluster_resources=lambda: {"CPU": 16.0, "GPU": 3.0})
    monkeypatch.setattr(cluster.Ray, "_connected", lambda _: ray)
    assert cluster.Ray(cpus=cpus, gpus=gpus, processes_per_member=processes).width == room


def test_a_task_sees_its_own_gpus_from_0_on():
    assert cluster._of_this_task(torch.device("cuda:3")) == torch.device("cuda:0")
    assert cluster._of_this_task(CPU) == CPU
