"""Hugging Face's Trainer calls a recorder at the iterations that wf.Iterations would collect."""

import copy
import sys

import pytest
import torch
from torch import nn
from torch.utils.data import Dataset, IterableDataset

import wherefrom as wf
from wherefrom.laws import TRADI

pytestmark = pytest.mark.slow

transformers = pytest.importorskip("transformers", reason="needs transformers: pip install 'wherefrom[huggingface]'")
pytest.importorskip("accelerate", reason="needs accelerate: pip install 'wherefrom[huggingface]'")

ROWS, BATCH, WORDS = 40, 10, 11


def bert(attention_dropout: float = 0.1) -> nn.Module:
    config = transformers.BertConfig(
        vocab_size=WORDS,
        hidden_size=8,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=16,
        max_position_embeddings=8,
        num_labels=1,
        attention_probs_dropout_prob=attention_dropout,
    )
    return transformers.BertForSequenceClassification(config)


class Answers(nn.Module):
    """The model as a function of one tensor. Attention draws its dropout itself, which nobody could repeat."""

    def __init__(self) -> None:
        super().__init__()
        self.net = bert(attention_dropout=0.0)

    def forward(self, words: torch.Tensor) -> torch.Tensor:
        return self.net(input_ids=words).logits


class Sentences(Dataset):
    def __init__(self) -> None:
        self.words = torch.randint(WORDS, (ROWS, 6), generator=torch.Generator().manual_seed(0))

    def __len__(self) -> int:
        return ROWS

    def __getitem__(self, index):
        return {"input_ids": self.words[index], "labels": self.words[index].float().mean()}


class Steps(transformers.TrainerCallback):
    """Writes down where the training passes."""

    def __init__(self):
        self.steps, self.epochs = [], []

    def on_step_end(self, args, state, control, **others):
        self.steps.append(copy.deepcopy(others["model"].state_dict()))

    def on_epoch_end(self, args, state, control, **others):
        self.epochs.append(copy.deepcopy(others["model"].state_dict()))


def fit(callback, folder, seed=0, model=None, rows=None, **settings):
    torch.manual_seed(seed)
    arguments = transformers.TrainingArguments(
        **{
            "output_dir": str(folder),
            "num_train_epochs": 4,
            "per_device_train_batch_size": BATCH,
            "learning_rate": 0.01,
            "report_to": [],
            "save_strategy": "no",
            "logging_strategy": "no",
            "disable_tqdm": True,
            "use_cpu": True,
            "seed": seed,
        }
        | settings
    )
    steps = Steps()
    model = model or bert()
    rows = rows or Sentences()
    trainer = transformers.Trainer(model=model, args=arguments, train_dataset=rows, callbacks=[steps, callback])
    trainer.train()
    return steps, trainer


def assert_same(found: wf.Recorder, law, states) -> None:
    expected, model = wf.Recorder(law, expected=len(states)), bert()
    for state in states:
        model.load_state_dict(state)
        expected.update(model)
    assert found.updates == expected.updates
    for name, tensor in expected.law().tensors().items():
        assert torch.equal(found.law().tensors()[name], tensor)


def test_once_an_epoch_from_the_middle_on(tmp_path):
    law = wf.SWAG(rank=2)
    callback = wf.callbacks.HuggingFaceRecorder(law)
    steps, trainer = fit(callback, tmp_path)
    assert_same(callback.recorder, law, steps.epochs[2:])
    assert torch.equal(callback.recorder.last()["classifier.bias"], trainer.model.classifier.bias)


@pytest.mark.parametrize(
    ("settings", "recording", "collected"),
    [
        ({}, {"every": 3}, [11, 14]),  # of 16 steps, from the ninth on
        ({"gradient_accumulation_steps": 2}, {"every": 1}, [5, 6, 7, 8]),
        ({"max_steps": 10}, {"every": 2}, [7, 9]),
        ({"max_steps": 9}, {"every": 1, "start": 1}, [5, 6, 7, 8, 9]),  # after one epoch
        ({"max_steps": 10}, {"every": "epoch", "start": 0.0}, [4, 8, 10]),  # the last epoch is cut short
    ],
)
def test_every_so_many_steps(settings, recording, collected, tmp_path):
    law = wf.SWAG(rank=2)
    callback = wf.callbacks.HuggingFaceRecorder(law, **recording)
    steps, _ = fit(callback, tmp_path, **settings)
    assert_same(callback.recorder, law, [steps.steps[k - 1] for k in collected])


class Stream(IterableDataset):
    """Data that does not say how long it is."""

    def __iter__(self):
        return (Sentences()[k] for k in range(ROWS))


def test_data_without_a_length(tmp_path):
    callback = wf.callbacks.HuggingFaceRecorder(wf.SWAG(rank=2), every=2)
    fit(callback, tmp_path, rows=Stream(), max_steps=8)
    assert callback.recorder.updates == 2
    with pytest.raises(ValueError, match="not known how long"):
        fit(wf.callbacks.HuggingFaceRecorder(wf.SWAG(rank=2)), tmp_path, rows=Stream(), max_steps=8)


def test_tradi_and_no_law(tmp_path):
    callback = wf.callbacks.HuggingFaceRecorder(TRADI())
    fit(callback, tmp_path)
    assert callback.recorder.updates == callback.recorder.expected == 8
    callback = wf.callbacks.HuggingFaceRecorder()
    fit(callback, tmp_path)
    assert callback.recorder.updates == 1


def test_several_trainings_make_a_posterior(tmp_path):
    """From recorders, and from the folders that Hugging Face writes."""
    recorders, folders = [], []
    for seed in range(2):
        callback = wf.callbacks.HuggingFaceRecorder(wf.SWAG(rank=2))
        _, trainer = fit(callback, tmp_path, seed)
        recorders.append(callback.recorder)
        folders.append(tmp_path / f"model-{seed}")
        trainer.save_model(str(folders[-1]))
    words = Sentences().words
    posterior = wf.Posterior.from_members(recorders, model=Answers, x=words[:4], dropout=wf.Dropout())
    assert repr(posterior) == "Posterior(2 members, marginalises theta0, t, F)"
    assert posterior.predict(words, samples=8).std.min() > 0
    ensemble = wf.Posterior.from_members(folders, model=Answers, x=words[:4])
    with torch.no_grad():
        trained = trainer.model.eval()(input_ids=words).logits.flatten()
    members = ensemble.predict(words).samples
    torch.testing.assert_close(members[1].flatten().float(), trained, rtol=1e-4, atol=1e-5)
    assert torch.equal(ensemble.predict(words).mean, posterior.marginalising("theta0").predict(words).mean)


def test_what_cannot_be_recorded_is_told_before_training(tmp_path):
    with pytest.raises(ValueError, match="needs at least 2"):
        fit(wf.callbacks.HuggingFaceRecorder(wf.SWAG(), start=0.9), tmp_path)
    with pytest.raises(ValueError, match="no training has begun"):
        wf.callbacks.HuggingFaceRecorder(wf.SWAG()).recorder  # noqa: B018


def test_where_there_is_none(monkeypatch):
    monkeypatch.setitem(sys.modules, "transformers", None)
    with pytest.raises(ModuleNotFoundError, match=r"pip install 'wherefrom\[huggingface\]'"):
        wf.callbacks.HuggingFaceRecorder(wf.SWAG())
