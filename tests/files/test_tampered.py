"""Files that were changed by somebody who wrote the digests anew, too.

A FileError that names the file, never a raw error, and no code is run. Changes at random are in test_mutated.py.
"""

import copy
import json
import os

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load

import wherefrom as wf
from conftest import mlp, training
from rewritten import rewrite, rewrite_member
from wherefrom.files import atomic
from wherefrom.files.folders import Run
from wherefrom.tables import model as models
from wherefrom.tables.model import Model
from wherefrom.variables import Families

pytestmark = pytest.mark.slow

WRONG = [None, -1, "os.system", [], {}, {"$": "code", "name": "os.system", "as_written": "it"}, {"$": "SWAG"}]


@pytest.fixture(autouse=True)
def _without_waiting_for_the_disk(monkeypatch):
    monkeypatch.setattr(os, "fsync", lambda descriptor: None)


def spots(document, path=()):
    """The path of every value in a document; of a list, of the first few."""
    for key, value in document.items() if isinstance(document, dict) else enumerate(document[:3]):
        yield (*path, key)
        if isinstance(value, dict | list):
            yield from spots(value, (*path, key))


def changed(document, path, change):
    """A copy, with `change(parent, key)` done to one value."""
    twin = copy.deepcopy(document)
    parent = twin
    for key in path[:-1]:
        parent = parent[key]
    change(parent, path[-1])
    return twin


def removed(parent, key):
    del parent[key]


def assert_words(read, name):
    """It is read as if nothing were, or refused with a message that names the file or the model."""
    try:
        read()
    except wf.FileError as error:
        if name not in str(error):
            raise AssertionError("no file is named") from error


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    x = torch.randn(40, 4, generator=torch.Generator().manual_seed(0)).numpy()
    over = [
        wf.Families({"small": wf.MLP([3]), "large": mlp(hidden=5)}),
        wf.Hyperparameters(lr=[0.01, 0.02]),
        wf.Iterations(wf.SWAG(2)),
    ]
    folder = tmp_path_factory.mktemp("run")
    posterior = wf.marginalise(training(wf.MLP([4]), epochs=4), (x, x[:, 0]), over).calibrated(
        "conformal", (x + 1, x[:, 0])
    )
    posterior.save(folder)
    return folder, lambda: wf.load(folder, {"large": mlp(hidden=5)})


def test_every_value_of_a_posterior(saved):
    folder, read = saved
    document = Run.open(folder).json("posterior.json")
    for number, spot in enumerate(spots(document)):
        wrong = WRONG[number % len(WRONG)]
        for change in (removed, lambda parent, key, wrong=wrong: parent.__setitem__(key, wrong)):
            twin = changed(document, spot, change)
            rewrite(folder, "posterior.json", lambda _, twin=twin: twin)
            assert_words(read, str(folder))
    rewrite(folder, "posterior.json", lambda _: document)
    assert read().design.families.factories.keys() == {"small", "large"}


def test_every_value_of_a_member(saved):
    folder, read = saved
    metadata, tensors = Run.open(folder).tensors("member-1.safetensors")
    about = json.loads(metadata["about"])
    for number, spot in enumerate(spots(about)):
        wrong = WRONG[number % len(WRONG)]
        for change in (removed, lambda parent, key, wrong=wrong: parent.__setitem__(key, wrong)):
            twin = changed(about, spot, change)
            rewrite_member(folder, "member-1.safetensors", lambda _, t, twin=twin: (twin, t))
            assert_words(read, str(folder))
    for name, tensor in tensors.items():
        for other in (tensor[..., :-1], tensor.long(), tensor / 0):
            others = tensors | {name: other}
            rewrite_member(folder, "member-1.safetensors", lambda about, _, others=others: (about, others))
            assert_words(read, str(folder))
    rewrite_member(folder, "member-1.safetensors", lambda *_: (about, tensors))
    assert len(read()) == 4


def test_members_that_are_not_the_draws_of_the_design(saved):
    folder, read = saved
    metadata, tensors = Run.open(folder).tensors("member-1.safetensors")
    about = json.loads(metadata["about"])
    other = copy.deepcopy(about)
    labels = other["member"]["run"]["labels"]
    labels[list(labels)[-1]] = 2
    rewrite_member(folder, "member-1.safetensors", lambda *_: (other, tensors))
    with pytest.raises(wf.FileError, match="its 4 members do not cross their draws: 2 of F, 3 of h"):
        read()
    rewrite_member(folder, "member-1.safetensors", lambda *_: (about, tensors))


def test_a_size_that_a_file_states_is_not_believed(saved):
    """A network of 10^12 weights is refused before anything of that size is made."""
    folder, read = saved
    document = Run.open(folder).json("posterior.json")
    huge = copy.deepcopy(document)
    huge["posterior"]["design"]["axes"][0]["variables"][0]["factories"]["small"]["hidden"] = [10**12]
    rewrite(folder, "posterior.json", lambda _: huge)
    with pytest.raises(wf.FileError, match=r"MLP\(.*\) has 6000000000001 weights, which the file does not hold"):
        read()
    rewrite(folder, "posterior.json", lambda _: document)


def test_every_value_of_a_recorder(tmp_path):
    recorder = wf.Recorder(wf.SWAG(2))
    network = mlp(hidden=3)()
    for _ in range(3):
        recorder.update(network)
    path = tmp_path / "member.safetensors"
    recorder.save(path)
    tensors = load(path.read_bytes())
    with safe_open(path, framework="pt") as file:
        metadata = file.metadata()
    about = json.loads(metadata["about"])
    for place, spot in enumerate(spots(about)):
        for change in (removed, lambda parent, key, place=place: parent.__setitem__(key, WRONG[place % len(WRONG)])):
            atomic.write_tensors(path, tensors, metadata | {"about": json.dumps(changed(about, spot, change))})
            assert_words(lambda: wf.Recorder.load(path).law(), "member.safetensors")  # what loads has a law
    for other in ({"about": "{"}, {"about": "[]"}, {"wherefrom recorder": "one"}):
        atomic.write_tensors(path, tensors, metadata | other)
        with pytest.raises(ValueError, match=r"member\.safetensors"):
            wf.Recorder.load(path)
    path.write_bytes(b"torn")
    with pytest.raises(ValueError, match=r"member\.safetensors cannot be read"):
        wf.Recorder.load(path)
    with pytest.raises(ValueError, match=r"member\.safetensors cannot be read"):
        wf.Posterior.from_members([path] * 2, model=mlp(hidden=3), x=[[0.0] * 4])


def test_every_value_of_a_run_of_a_table(quantities, tmp_path, monkeypatch):
    _, run = quantities
    run.save(tmp_path / "run")
    monkeypatch.setattr(models.store, "read", lambda *_, **__: run.posterior)  # whose files are not touched
    document = Run.open(tmp_path / "run").json("table.json")
    for number, spot in enumerate(spots(document)):
        for change in (removed, lambda parent, key, number=number: parent.__setitem__(key, WRONG[number % len(WRONG)])):
            twin = changed(document, spot, change)
            rewrite(tmp_path / "run", "table.json", lambda _, twin=twin: twin)
            assert_words(lambda: Model.load(tmp_path / "run"), "run")


def test_checkpoints_that_were_changed_are_named(problem, tmp_path):
    setup, over = training(), [wf.InitialCondition(2)]
    wf.marginalise(setup, problem, over, checkpoints=tmp_path)
    (path,) = tmp_path.glob("*.safetensors")
    tensors = load(path.read_bytes())
    with safe_open(path, framework="pt") as file:
        metadata = file.metadata()
    about = json.loads(metadata["about"])
    for place, spot in enumerate(spot for spot in spots(about) if spot[0] != "members"):
        for change in (removed, lambda parent, key, place=place: parent.__setitem__(key, WRONG[place % len(WRONG)])):
            atomic.write_tensors(path, tensors, metadata | {"about": json.dumps(changed(about, spot, change))})
            assert_words(lambda: wf.marginalise(setup, problem, over, checkpoints=tmp_path), path.name)


def test_families_are_filled_in_one_posterior_alone(saved):
    """The factories that are given for one load are not those of another."""
    _, read = saved
    one, other = read(), read()
    assert isinstance(one.design.families, Families)
    assert one.design.families.factories is not other.design.families.factories
