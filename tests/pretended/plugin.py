"""A pytest plugin that gives torch the pretended device, and may train every posterior on it.

PYTHONPATH=tests python -m pytest -p pretended.plugin --on-device tests/training/test_engines.py

WHEREFROM_TEST_DEVICE=cuda takes a real GPU instead of the pretended one.
"""

from __future__ import annotations

import types
from collections.abc import Iterator
from functools import partial

import pytest
import torch

from pretended import device

_native: list[types.ModuleType] = []


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--on-device", action="store_true", help="use the device that is tested wherever the CPU is meant")


@pytest.hookimpl(tryfirst=True)
def pytest_load_initial_conftests(early_config: pytest.Config) -> None:
    """Register the device before any module of the library is imported, which keeps `available` under its name."""
    if device.IS_PRETENDED:
        _native.append(device.register())
    else:
        torch.backends.cudnn.allow_tf32 = False  # oracles are computed with 24 bits
    if early_config.known_args_namespace.on_device:
        from wherefrom.training import workers

        really_available = workers.available

        def available(name: str | torch.device) -> torch.device:
            given = really_available(name)
            return torch.device(device.FIRST) if given.type == "cpu" else given

        workers.available = available
        # Weights stay on the device, and oracles are in main memory: their numbers are compared.
        torch.testing.assert_close = partial(torch.testing.assert_close, check_device=False)


@pytest.fixture
def native() -> Iterator[types.ModuleType]:
    """Counters and switches of the pretended device; the switches are off again afterwards."""
    if not _native:
        pytest.skip("only the pretended device counts, and has switches")
    yield _native[0]
    for switch in (_native[0].tf32, _native[0].noise, _native[0].single):
        switch(False)


@pytest.fixture
def second_device() -> str:
    """Return the name of a second device of the kind that is tested."""
    if torch.get_device_module(device.NAME).device_count() < 2:
        pytest.skip("there is one device")
    return device.SECOND


_ORACLE = "its oracle multiplies weights, which are on the device, with rows in main memory"
_GENERATOR = "its augmentation adds numbers of the CPU to a batch on the device, as the error says"
_NATIVE = "the native engine trains on CPUs"
_PROCESS = "its other processes do not have the device"
_CELL = "fused recurrent cells are missing on the pretended device"

# Tests that cannot pass there, and why.
EXCEPTIONS: dict[str, str] = {
    "test_a_law_that_carries_its_statistics_keeps_them": _ORACLE,
    "test_it_is_what_torch_does_for_each_sampled_network": _ORACLE,
    "test_noise_has_the_size_that_was_asked_for": _ORACLE,
    "test_noise_of_the_inputs_is_shared_by_the_first_layers_units": _ORACLE,
    "test_noise_of_the_inputs_through_a_linear_model": _ORACLE,
    "test_snapshots_are_their_points_and_one_network_is_certain": _ORACLE,
    "test_the_kept_deviations_are_the_best_of_their_number": _ORACLE,
    "test_weights_that_are_dropped_have_the_variance_of_their_masks": _ORACLE,
    "test_an_augmentation_that_is_code_is_asked_for_again": _GENERATOR,
    "test_statistics_are_those_of_augmented_rows": _GENERATOR,
    "test_a_streamed_table_is_not_standardised": _NATIVE,
    "test_extend_uses_the_same_engine": _NATIVE,
    "test_a_unit_takes_its_own_members_and_rows_along_and_no_others": _NATIVE,
    "test_the_native_engine_leaves_it_to_torch": _NATIVE,
    "test_the_native_engine_says_that_it_cannot": _NATIVE,
    "test_members_that_were_kept_are_not_trained_again": _PROCESS,
    "test_units_go_to_other_processes": _PROCESS,
    "test_users_own_networks_and_optimisers_go_too": _PROCESS,
    "test_a_processor_that_crashes_is_refused_in_words": "bfloat16 is tried on CPUs alone",
    "test_predictions_equal_the_module[GRU]": _CELL,
    "test_predictions_equal_the_module[LSTM]": _CELL,
    "test_predictions_equal_the_module[through numpy]": "numpy does not read the memory of a device",
    "test_members_are_those_of_a_plain_loop[asgd]": "torch takes its multi-tensor form, which rounds otherwise",
}


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Skip what is about the CPU alone, if all tests are to run on the device."""
    if not config.getoption("--on-device"):
        return
    for item in items:
        parameters = getattr(getattr(item, "callspec", None), "params", {})
        if parameters.get("engine") == "native" or "native" in item.path.parts:
            item.add_marker(pytest.mark.skip(reason=_NATIVE))
        for name in (item.name, item.name.partition("[")[0]):
            if name in EXCEPTIONS:
                item.add_marker(pytest.mark.skip(reason=EXCEPTIONS[name]))
