"""Lightning's Trainer calls a recorder at the iterations that wf.Iterations would collect; its files can be read."""

import copy
import pickle
import sys

import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, IterableDataset, TensorDataset

import wherefrom as wf
from conftest import mlp
from wherefrom.laws import TRADI

L = pytest.importorskip("lightning.pytorch", reason="needs Lightning: pip install 'wherefrom[lightning]'")
pytestmark = [
    pytest.mark.filterwarnings("ignore:.*LeafSpec:FutureWarning"),  # Lightning's own, on recent versions of torch
    pytest.mark.filterwarnings("ignore:.*does not have many workers"),
    pytest.mark.filterwarnings("ignore:.*Checkpoint directory"),
]
ROWS, BATCH = 60, 20


class Lit(L.LightningModule):
    """A network in Lightning, which writes down where its training passes."""

    def __init__(self, model=None):
        super().__init__()
        self.model = mlp()() if model is None else model
        self.steps, self.epochs = [], []

    def training_step(self, batch, index):
        x, y = batch
        return (self.model(x).squeeze(1) - y).square().mean()

    def on_before_zero_grad(self, optimizer):
        self.steps.append(copy.deepcopy(self.model.state_dict()))  # before the first step, after it, ...

    def on_train_epoch_end(self):
        self.epochs.append(copy.deepcopy(self.model.state_dict()))

    def configure_optimizers(self):
        return torch.optim.Adam(self.parameters(), lr=0.02)


def data() -> tuple[torch.Tensor, torch.Tensor]:
    x = torch.randn(ROWS, 4, generator=torch.Generator().manual_seed(0))
    return x, 2 * x[:, 0] + x[:, 1].abs()


def fit(callback, module=None, epochs=6, loader=None, **settings):
    module = module or Lit()
    quiet = {"logger": False, "enable_progress_bar": False, "enable_model_summary": False, "accelerator": "cpu"}
    length = {} if "max_steps" in settings else {"max_epochs": epochs}
    trainer = L.Trainer(**quiet | {"enable_checkpointing": False} | length | settings, callbacks=[callback])
    trainer.fit(module, DataLoader(TensorDataset(*data()), batch_size=BATCH) if loader is None else loader)
    return module, trainer


def by_hand(law, states) -> wf.Recorder:
    recorder, network = wf.Recorder(law, expected=len(states)), mlp()()
    for state in states:
        network.load_state_dict(state)
        recorder.update(network)
    return recorder


def assert_same(found: wf.Recorder, expected: wf.Recorder) -> None:
    assert found.updates == expected.updates
    for name, tensor in expected.law().tensors().items():
        assert torch.equal(found.law().tensors()[name], tensor)


@pytest.mark.parametrize("law", [wf.SWAG(rank=2), wf.Snapshots(2)])
def test_once_an_epoch_from_the_middle_on(law):
    callback = wf.callbacks.LightningRecorder(law)
    module, _ = fit(callback)
    assert_same(callback.recorder, by_hand(law, module.epochs[3:]))
    assert torch.equal(callback.recorder.last()["model.0.weight"], module.model[0].weight)


@pytest.mark.parametrize(
    ("settings", "recording", "steps"),
    [
        ({}, {"every": 2}, [11, 13, 15, 17]),  # of 18, from the tenth on
        ({}, {"every": 4, "start": 0.0}, [4, 8, 12, 16]),
        ({}, {"every": 3, "start": 4}, [15, 18]),  # after four epochs
        ({"accumulate_grad_batches": 2}, {"every": 1, "start": 0.75}, [9, 10, 11, 12]),  # 12 steps of two batches
        ({"max_steps": 10}, {"every": 2}, [7, 9]),  # it stops within an epoch
    ],
)
def test_every_so_many_steps(settings, recording, steps):
    law = wf.SWAG(rank=2)
    callback = wf.callbacks.LightningRecorder(law, **recording)
    module, trainer = fit(callback, **settings)
    after = {}
    for state in module.steps:  # gradients are set to zero before the next step, when the last one is done
        after.setdefault(tuple(state["3.bias"].tolist()), state)
    reached = [*after.values(), copy.deepcopy(module.model.state_dict())]
    collected = [k for k in steps if k <= trainer.global_step]
    assert collected == steps
    assert_same(callback.recorder, by_hand(law, [reached[k] for k in steps]))


class Stream(IterableDataset):
    """Data that does not say how long it is."""

    def __iter__(self):
        return iter(TensorDataset(*data()))


def test_data_without_a_length():
    by_epoch = wf.callbacks.LightningRecorder(wf.SWAG(rank=2))
    fit(by_epoch, loader=DataLoader(Stream(), batch_size=BATCH))
    assert by_epoch.recorder.updates == 3
    by_step = wf.callbacks.LightningRecorder(wf.SWAG(rank=2), every=2)
    fit(by_step, loader=DataLoader(Stream(), batch_size=BATCH), max_steps=8)
    assert by_step.recorder.updates == 2
    for impossible in ({"every": 2}, {"every": 2, "start": 1}):
        with pytest.raises(ValueError, match="not known how long"):
            fit(wf.callbacks.LightningRecorder(wf.SWAG(), **impossible), loader=DataLoader(Stream(), batch_size=BATCH))


def test_tradi_sees_every_step():
    callback = wf.callbacks.LightningRecorder(TRADI())
    fit(callback)
    assert callback.recorder.updates == 9
    assert callback.recorder.expected == 9
    callback.recorder.law()


def test_without_a_law_it_takes_the_end():
    callback = wf.callbacks.LightningRecorder()
    module, _ = fit(callback)
    assert callback.recorder.updates == 1
    assert torch.equal(callback.recorder.last()["model.3.weight"], module.model[3].weight)


def test_a_training_that_goes_on_elsewhere(tmp_path):
    """Interrupted, and taken up again from a checkpoint with the recorder's own file."""
    law = wf.Snapshots(20)
    first = wf.callbacks.LightningRecorder(law, start=0.0)
    module, trainer = fit(first, epochs=2)
    trainer.save_checkpoint(tmp_path / "half.ckpt")
    first.recorder.save(tmp_path / "half.safetensors")
    second = wf.callbacks.LightningRecorder(wf.Recorder.load(tmp_path / "half.safetensors"), start=0.0)
    trainer = L.Trainer(
        max_epochs=5,
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        accelerator="cpu",
        callbacks=[second],
    )
    rest = Lit()
    loader = DataLoader(TensorDataset(*data()), batch_size=BATCH)
    trainer.fit(rest, loader, ckpt_path=tmp_path / "half.ckpt")
    assert_same(second.recorder, by_hand(law, [*module.epochs, *rest.epochs]))


def test_several_trainings_make_a_posterior(tmp_path):
    """From recorders, and from Lightning's own checkpoints, whose names begin with `model.`"""
    x, y = data()
    recorders, files = [], []
    for seed in range(3):
        L.seed_everything(seed, verbose=False)
        callback = wf.callbacks.LightningRecorder(wf.SWAG(rank=2))
        _, trainer = fit(callback)
        recorders.append(callback.recorder)
        files.append(tmp_path / f"{seed}.ckpt")
        trainer.save_checkpoint(files[-1])
    posterior = wf.Posterior.from_members(recorders, model=mlp(), x=x, y=y, dropout=wf.Dropout())
    assert repr(posterior) == "Posterior(3 members, marginalises theta0, t, F)"
    assert posterior.predict(x).sources().names == ("theta0", "t", "F", "t x F")
    ensemble = wf.Posterior.from_members(files, model=mlp(), x=x, y=y)
    assert torch.equal(ensemble.predict(x).mean, posterior.marginalising("theta0").predict(x).mean)


def test_checkpoints_with_code_in_them_are_refused(tmp_path):
    class WithCode(Lit):
        def __init__(self, model):
            super().__init__(model)
            self.save_hyperparameters(logger=False)

    with pytest.warns(UserWarning, match="is an instance of `nn.Module`"):
        module = WithCode(mlp()())
    _, trainer = fit(wf.callbacks.LightningRecorder(), module)
    trainer.save_checkpoint(tmp_path / "a.ckpt")
    with pytest.raises(ValueError, match="cannot be read as weights alone"):
        wf.Posterior.from_members([tmp_path / "a.ckpt"], model=mlp(), x=data()[0])


def test_what_cannot_be_recorded_is_told_before_training():
    few = wf.callbacks.LightningRecorder(wf.SWAG(), start=0.9)
    with pytest.raises(ValueError, match="needs at least 2"):
        fit(few)
    with pytest.raises(ValueError, match="not known how long"):
        fit(wf.callbacks.LightningRecorder(wf.SWAG()), epochs=-1)
    with pytest.raises(ValueError, match="looks at a whole training first"):
        wf.callbacks.LightningRecorder(wf.SWAG(), start="auto")
    with pytest.raises(ValueError, match="no training has begun"):
        few = wf.callbacks.LightningRecorder(wf.SWAG()).recorder
    with pytest.raises(TypeError, match="law must be a law"):
        wf.callbacks.LightningRecorder("swag")


def test_a_trial_run_records_nothing():
    callback = wf.callbacks.LightningRecorder(wf.SWAG())
    fit(callback, fast_dev_run=True)
    with pytest.raises(ValueError, match="no training has begun"):
        callback.recorder  # noqa: B018


def test_a_second_training_begins_anew():
    callback = wf.callbacks.LightningRecorder(wf.SWAG(rank=2))
    fit(callback)
    first = callback.recorder
    fit(callback)
    assert callback.recorder is not first
    assert callback.recorder.updates == first.updates == 3


def test_it_is_a_callback_and_can_be_sent_to_other_processes():
    callback = wf.callbacks.LightningRecorder(wf.SWAG(rank=2))
    assert isinstance(callback, L.Callback)
    assert isinstance(callback, wf.callbacks.LightningRecorder)
    for again in (pickle.loads(pickle.dumps(callback)), copy.deepcopy(callback)):
        assert isinstance(again, L.Callback)
        assert type(again) is type(callback)
        assert again._iterations == callback._iterations


def test_either_of_lightnings_two_packages(monkeypatch):
    other = pytest.importorskip("pytorch_lightning")
    for name in [name for name in sys.modules if name.split(".")[0] == "lightning"]:
        monkeypatch.delitem(sys.modules, name)
    callback = wf.callbacks.LightningRecorder(wf.SWAG(rank=2))
    assert isinstance(callback, other.Callback)
    assert not isinstance(callback, L.Callback)


def test_where_there_is_none(monkeypatch):
    for package in ("lightning", "lightning.pytorch", "pytorch_lightning"):
        monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(ModuleNotFoundError, match=r"pip install 'wherefrom\[lightning\]'"):
        wf.callbacks.LightningRecorder(wf.SWAG())


def test_batch_normalisation_in_lightning():
    model = nn.Sequential(nn.Linear(4, 6), nn.BatchNorm1d(6), nn.ReLU(), nn.Linear(6, 1))
    callback = wf.callbacks.LightningRecorder(wf.SWAG(rank=2))
    module, _ = fit(callback, Lit(model))
    layout = callback.recorder.layout
    assert "model.1.running_mean" in layout.names[: layout.trained + layout.moving]
    x, y = data()
    posterior = wf.Posterior.from_members([callback.recorder], model=lambda: copy.deepcopy(model), data=(x, y))
    assert posterior.predict(x).std.min() > 0
    assert module.model is model
