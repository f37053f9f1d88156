"""bfloat16 on a CPU: tried by a child process, whose verdict is kept."""

import pytest
import torch

import wherefrom as wf
from wherefrom.training import precision

CPU = torch.device("cpu")


@pytest.fixture
def verdicts(tmp_path, monkeypatch):
    """Return the folder of an empty cache."""
    monkeypatch.setenv("WHEREFROM_CACHE", str(tmp_path))
    precision.bfloat16_works.cache_clear()
    yield tmp_path
    precision.bfloat16_works.cache_clear()


@pytest.mark.parametrize(
    ("trial", "works"),
    [("", True), ("raise ImportError", True), ("import os; os.kill(os.getpid(), 4)", False)],
    ids=["well", "an error", "an illegal instruction"],
)
def test_a_processor_that_crashes_is_refused_in_words(verdicts, monkeypatch, trial, works):
    monkeypatch.setattr(precision, "_TRIAL", trial)
    if works:
        precision.check_autocast(torch.bfloat16, CPU)
    else:
        with pytest.raises(ValueError, match=r"bfloat16 crash on this processor"):
            precision.check_autocast(torch.bfloat16, CPU)
        x = torch.rand(8, 2)
        training = wf.Training(wf.MLP([4]), wf.Algorithm("sgd", lr=0.1, batch_size=4), epochs=1)
        with pytest.raises(ValueError, match=r"leave autocast out"):
            wf.marginalise(training, (x, x[:, 0]), [], autocast=torch.bfloat16)
    assert [path.read_text() for path in verdicts.iterdir()] == ["works" if works else "crashes"]
    precision.bfloat16_works.cache_clear()
    monkeypatch.setattr(precision, "_TRIAL", "import nothing")
    assert precision.bfloat16_works() == works  # as it is kept


def test_other_devices_and_types_are_not_tried(verdicts):
    precision.check_autocast(None, CPU)
    precision.check_autocast(torch.bfloat16)
    precision.check_autocast(torch.bfloat16, torch.device("meta"))
    assert not list(verdicts.iterdir())
    with pytest.raises(ValueError, match=r"must be None or torch\.bfloat16"):
        precision.check_autocast(torch.float16)


def test_double_precision_is_refused_where_there_is_none():
    precision.check_dtype(torch.float64, CPU)
    precision.check_dtype(torch.float32, torch.device("mps"))
    with pytest.raises(ValueError, match=r"MPS has no float64"):
        precision.check_dtype(torch.float64, torch.device("mps"))
