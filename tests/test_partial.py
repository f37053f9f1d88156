"""Damaged members: an error unless the others are asked for, which then predict as they did, and can be completed."""

import numpy as np
import pytest
import torch

import wherefrom as wf
from conftest import mlp, training
from wherefrom.files.folders import Run
from wherefrom.tables.model import Model


def damage(folder, *numbers):
    for number in numbers:
        path = Run.open(folder).path(f"member-{number}.safetensors")
        content = bytearray(path.read_bytes())
        content[-5] ^= 1
        path.write_bytes(content)


OVERS = {
    "one axis": [wf.InitialCondition(4)],
    "weighted families": [wf.Families({"a": mlp(), "b": mlp(hidden=5)}, weights=[1, 3]), wf.InitialCondition(2)],
}
MODELS = {"one axis": mlp(), "weighted families": {"a": mlp(), "b": mlp(hidden=5)}}


@pytest.mark.parametrize("which", OVERS)
def test_the_others_predict_as_they_did(which, problem, tmp_path):
    x, _ = problem
    posterior = wf.marginalise(training(), problem, OVERS[which])
    posterior.save(tmp_path)
    damage(tmp_path, 1)
    with pytest.raises(wf.FileError, match=r"member-1\.\w+\.safetensors is damaged .* partial=True"):
        wf.load(tmp_path, MODELS[which])
    with pytest.warns(UserWarning, match="1 of 4 members are damaged and left out"):
        part = wf.load(tmp_path, MODELS[which], partial=True)
    assert part.origin.damaged == ("member 1",)
    rest = [0, 2, 3]
    answers = posterior.predict(x).answers[rest]
    assert torch.equal(part.predict(x).answers, answers)
    weights = np.array(posterior.weights)[rest]
    np.testing.assert_allclose(part.weights, weights / weights.sum())
    mean = (answers[:, 0].double() * torch.tensor(part.weights)[:, None, None]).sum(0).reshape(-1)
    scaler = posterior.fold.scaler
    np.testing.assert_allclose(part.predict(x).mean, mean * scaler.y_std + scaler.y_mean, rtol=1e-5)


def test_sources_of_a_crossed_design_with_a_hole_say_why_not(problem, tmp_path):
    wf.marginalise(training(), problem, [wf.InitialCondition(2), wf.BatchOrder(2)]).save(tmp_path)
    damage(tmp_path, 2)
    with pytest.warns(UserWarning, match="damaged and left out"):
        part = wf.load(tmp_path, mlp(), partial=True)
    with pytest.raises(ValueError, match="the files of these are damaged: member 2"):
        part.predict(problem[0]).sources()


def test_sources_of_what_is_left_are_those_of_a_part(problem, tmp_path):
    """Without one draw of a single variable, the others are still a design."""
    posterior = wf.marginalise(training(), problem, [wf.InitialCondition(4)])
    posterior.save(tmp_path)
    damage(tmp_path, 2)
    with pytest.warns(UserWarning, match="damaged and left out"):
        part = wf.load(tmp_path, mlp(), partial=True)
    expected = posterior.select(theta0=[0, 1, 3]).predict(problem[0]).sources()
    assert str(part.predict(problem[0]).sources()) == str(expected)


def test_weights_that_were_set_keep_their_proportions(problem, tmp_path):
    posterior = wf.marginalise(training(), problem, [wf.InitialCondition(3)]).weighted([0.5, 0.3, 0.2])
    posterior.save(tmp_path)
    damage(tmp_path, 0)
    with pytest.warns(UserWarning, match="damaged and left out"):
        part = wf.load(tmp_path, mlp(), partial=True)
    np.testing.assert_allclose(part.weights, [0.6, 0.4])


def test_what_was_lost_is_trained_again_by_extend(problem, tmp_path):
    x, _ = problem
    posterior = wf.marginalise(training(), problem, [wf.InitialCondition(3)])
    posterior.save(tmp_path)
    damage(tmp_path, 1)
    with pytest.warns(UserWarning, match="damaged and left out"):
        part = wf.load(tmp_path, mlp(), data=problem, partial=True)
    again, expected = part.extend(theta0=1), posterior.extend(theta0=1)
    assert again.origin.damaged == ()
    assert torch.allclose(again.predict(x).answers, expected.predict(x).answers, atol=1e-6)


def test_a_run_without_a_whole_member_is_an_error(problem, tmp_path):
    wf.marginalise(training(), problem, [wf.InitialCondition(2)]).save(tmp_path)
    damage(tmp_path, 0, 1)
    with pytest.raises(wf.FileError, match="has no member that is whole"):
        wf.load(tmp_path, mlp(), partial=True)


def test_damage_elsewhere_is_an_error_all_the_same(problem, tmp_path):
    wf.marginalise(training(), problem, [wf.InitialCondition(2)]).save(tmp_path)
    path = Run.open(tmp_path).path("posterior.json")
    path.write_bytes(path.read_bytes().replace(b"adam", b"Adam"))
    with pytest.raises(wf.FileError, match=r"posterior\.\w+\.json is damaged"):
        wf.load(tmp_path, mlp(), partial=True)


def test_a_table_predicts_with_the_members_that_are_left(quantities, tmp_path):
    path, run = quantities
    run.save(tmp_path / "run")
    damage(tmp_path / "run", 0)
    with pytest.raises(wf.FileError, match="member-0"):
        Model.load(tmp_path / "run")
    with pytest.warns(UserWarning, match="1 of 3 members are damaged"):
        part = wf.load(tmp_path / "run", partial=True)
    assert len(part.posterior) == 2
    assert np.isfinite(part.look(path).columns()["mean"]).all()


def test_a_damaged_checkpoint_is_named(problem, tmp_path):
    setup, over = training(), [wf.InitialCondition(2)]
    wf.marginalise(setup, problem, over, checkpoints=tmp_path)
    (path,) = tmp_path.glob("*.safetensors")
    content = path.read_bytes()
    for at in (3, 40, len(content) // 2, len(content) - 3):
        changed = bytearray(content)
        changed[at] ^= 4
        path.write_bytes(changed)
        with pytest.raises(wf.FileError, match=rf"{path.name} .*delete it, and its members are trained anew"):
            wf.marginalise(setup, problem, over, checkpoints=tmp_path)
