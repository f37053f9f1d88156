"""Files that were tampered with: a ValueError that names the file, never a raw error, and no code is run."""

import copy
import json

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load, save_file

import wherefrom as wf
from conftest import mlp, training
from wherefrom.posterior import store
from wherefrom.tables import model as models
from wherefrom.tables.model import Model
from wherefrom.variables import Families

pytestmark = pytest.mark.slow

WRONG = [None, -1, "os.system", [], {}, {"$": "code", "name": "os.system", "as_written": "it"}, {"$": "SWAG"}]


def spots(document, path=()):
    """The path of every value in a document."""
    for key, value in document.items() if isinstance(document, dict) else enumerate(document):
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
    except ValueError as error:
        if name not in str(error) and "not the one that was saved" not in str(error):
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
    path = folder / "posterior.json"
    text = path.read_text()
    document = json.loads(text)
    every = [spot for spot in spots(document) if not (spot[:2] == ("posterior", "mixture") and spot[2:3] > (0,))]
    try:
        for place, spot in enumerate(every):
            wrong = WRONG[place % len(WRONG)]
            for change in (removed, lambda parent, key, wrong=wrong: parent.__setitem__(key, wrong)):
                path.write_text(json.dumps(changed(document, spot, change)))
                assert_words(read, str(folder))
    finally:
        path.write_text(text)
    assert read().design.families.factories.keys() == {"small", "large"}


@pytest.mark.parametrize(
    "text", ["", "[]", "{}", "[" * 100_000, '{"format": "3"}', f'{{"format": {store.FORMAT}}}', "\x00"]
)
def test_json_that_is_none(saved, text):
    folder, read = saved
    path = folder / "posterior.json"
    before = path.read_text()
    try:
        path.write_text(text)
        with pytest.raises(ValueError, match=r"posterior\.json"):
            read()
    finally:
        path.write_text(before)


def test_numbers_that_are_damaged_missing_or_others(saved):
    folder, read = saved
    (path,) = folder.glob("*.safetensors")
    whole = path.read_bytes()
    tensors = load(whole)
    name = next(name for name in tensors if name.endswith("last"))
    try:
        for content in (b"", whole[:-10], whole[:50], b"\xff" * 100):
            path.write_bytes(content)
            with pytest.raises(ValueError, match=r"posterior-\w+\.safetensors cannot be read"):
                read()
        for other in ({}, tensors | {name: torch.zeros(3)}, {k: v for k, v in tensors.items() if k != name}):
            save_file(other, path)
            with pytest.raises(ValueError, match=r"posterior\.json cannot be read: .*(lacks|shape)"):
                read()
        path.unlink()
        with pytest.raises(FileNotFoundError, match=r"there is no file .*posterior-\w+\.safetensors"):
            read()
    finally:
        path.write_bytes(whole)


def test_a_folder_reads_only_its_own_numbers(saved, tmp_path):
    """A name that leads out of the folder is looked for inside."""
    folder, read = saved
    (numbers,) = folder.glob("*.safetensors")
    (tmp_path / "outside.safetensors").write_bytes(numbers.read_bytes())
    path = folder / "posterior.json"
    text = path.read_text()
    try:
        path.write_text(json.dumps(json.loads(text) | {"tensors": str(tmp_path / "outside.safetensors")}))
        with pytest.raises(FileNotFoundError, match=str(folder)):
            read()
    finally:
        path.write_text(text)


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
            save_file(tensors, path, metadata | {"about": json.dumps(changed(about, spot, change))})
            assert_words(lambda: wf.Recorder.load(path), "member.safetensors")
    for other in ({"about": "{"}, {"about": "[]"}, {"wherefrom recorder": "one"}):
        save_file(tensors, path, metadata | other)
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
    monkeypatch.setattr(models.store, "load", lambda folder: run.posterior)  # whose file is not touched
    path = tmp_path / "run" / "table.json"
    document = json.loads(path.read_text())
    for place, spot in enumerate(spots(document)):
        for change in (removed, lambda parent, key, place=place: parent.__setitem__(key, WRONG[place % len(WRONG)])):
            path.write_text(json.dumps(changed(document, spot, change)))
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
            save_file(tensors, path, metadata | {"about": json.dumps(changed(about, spot, change))})
            assert_words(lambda: wf.marginalise(setup, problem, over, checkpoints=tmp_path), path.name)


def test_families_are_filled_in_one_posterior_alone(saved):
    """The factories that are given for one load are not those of another."""
    _, read = saved
    one, other = read(), read()
    assert isinstance(one.design.families, Families)
    assert one.design.families.factories is not other.design.families.factories
