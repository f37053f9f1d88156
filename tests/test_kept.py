"""Members are kept as they come: the same call goes on, more draws train the new ones, other settings are refused."""

import os
import signal
from concurrent.futures.process import BrokenProcessPool
from pathlib import Path

import numpy as np
import pytest
import torch

import apart
import wherefrom as wf
from conftest import mlp, training
from wherefrom.files import folders

EPOCHS = 6
OVER = [wf.InitialCondition(3), wf.Hyperparameters(2, lr=torch.distributions.Uniform(0.001, 0.02))]
SIZES = [wf.Hyperparameters(points=[dict(batch_size=size) for size in (10, 15, 20, 25)])]  # four cohorts


def run(data, over, folder, heard=None, **how):
    point = how.pop("point", training())
    progress = False if heard is None else heard if callable(heard) else heard.append
    return wf.marginalise(point, data, over, store=folder, progress=progress, workers=1, **how)


def assert_same(one: wf.Posterior, other: wf.Posterior, x) -> None:
    assert [m.run.labels for m in one.mixture] == [m.run.labels for m in other.mixture]
    assert torch.equal(one.predict(x, samples=3).answers, other.predict(x, samples=3).answers)


@pytest.mark.parametrize("over", [OVER, [*SIZES, wf.Iterations(wf.SWAG(rank=2))]], ids=["crossed", "collected"])
def test_the_same_call_trains_nothing_again(problem, tmp_path, over):
    first, heard = run(problem, over, tmp_path / "run"), []
    assert_same(first, wf.marginalise(training(), problem, over, workers=1), problem[0])
    again = run(problem, over, tmp_path / "run", heard)
    assert not heard
    assert_same(first, again, problem[0])
    assert_same(first, wf.load(tmp_path / "run", mlp()), problem[0])
    assert folders.check(tmp_path / "run").others == ()


def stops_after(epochs: int):
    left = [epochs]

    def report(done: int) -> None:
        left[0] -= done
        if left[0] <= 0:
            raise KeyboardInterrupt

    return report


@pytest.mark.parametrize("stop", [1, EPOCHS, 2 * EPOCHS + 1, 4 * EPOCHS])
def test_an_interrupted_call_goes_on(problem, tmp_path, stop):
    with pytest.raises(KeyboardInterrupt, match=r"finished members are in .*make the same call again"):
        run(problem, SIZES, tmp_path, stops_after(stop))
    finished = [name for name in folders.Run.open(tmp_path).files if name.startswith("kept-")]
    assert len(finished) == (stop - 1) // EPOCHS
    heard: list[int] = []
    assert_same(run(problem, SIZES, tmp_path, heard), wf.marginalise(training(), problem, SIZES), problem[0])
    assert sum(heard) == EPOCHS * (4 - len(finished))
    assert {path.name for path in tmp_path.iterdir() if "." not in path.name} == set()


def killed(folder: Path, data, after: int) -> None:
    left = [after]

    def report(done: int) -> None:
        left[0] -= done
        if left[0] <= 0:
            os.kill(os.getpid(), signal.SIGKILL)

    run(data, SIZES, folder, report)


@pytest.mark.slow
def test_a_killed_call_goes_on(problem, tmp_path):
    with pytest.raises(BrokenProcessPool):
        apart.alone(killed, tmp_path, problem, 2 * EPOCHS + 1)
    heard: list[int] = []
    assert_same(run(problem, SIZES, tmp_path, heard), wf.marginalise(training(), problem, SIZES), problem[0])
    assert 0 < sum(heard) <= 3 * EPOCHS


@pytest.mark.slow
def test_more_draws_train_only_the_new_ones(problem, tmp_path):
    run(problem, OVER, tmp_path)
    more = [wf.InitialCondition(5), OVER[1]]
    heard: list[int] = []
    grown = run(problem, more, tmp_path, heard)
    assert sum(heard) == EPOCHS * 4
    assert_same(grown, wf.load(tmp_path, mlp()), problem[0])
    for few, many in zip(run(problem, OVER, tmp_path).mixture, grown.mixture[:6], strict=True):
        assert torch.equal(few.trained.last, many.trained.last)
    assert len(wf.load(tmp_path, mlp())) == 6
    heard.clear()
    assert_same(run(problem, more, tmp_path, heard), grown, problem[0])  # nothing was lost by asking for fewer
    assert not heard


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"point": training(epochs=7)}, "epochs was 6 and is 7"),
        ({"point": training(algorithm=wf.Algorithm("sgd", lr=0.02, batch_size=25))}, "algorithm was .*adam.* is .*sgd"),
        ({"point": training(mlp(hidden=13))}, "the model is not the same"),
        ({"point": training(likelihood=wf.Regression(noise=0.1))}, "likelihood was"),
        ({"seed": 4}, r"seed was \[0\] and is \[4\]"),
        ({"dtype": torch.float64}, "dtype was torch.float32 and is torch.float64"),
        ({"over": [wf.BatchOrder(2)]}, "over was .*InitialCondition.* and is .*BatchOrder"),
        ({"data": 0}, "the data is not the same"),
    ],
)
def test_other_settings_are_refused_by_name(problem, tmp_path, change, words):
    run(problem, [wf.InitialCondition(2)], tmp_path)
    before = {path.name for path in tmp_path.iterdir()}
    x, y = problem
    data = (x, y + 1) if "data" in change else problem
    how = {name: value for name, value in change.items() if name not in ("data", "over")}
    with pytest.raises(ValueError, match=f"begun with other settings: {words}"):
        run(data, change.get("over", [wf.InitialCondition(2)]), tmp_path, **how)
    assert {path.name for path in tmp_path.iterdir()} == before


def test_other_runs_are_not_overwritten(problem, tmp_path):
    wf.marginalise(training(), problem, []).save(tmp_path)
    with pytest.raises(FileExistsError, match="name another folder"):
        run(problem, [], tmp_path)


@pytest.mark.slow
def test_a_damaged_member_is_trained_again(problem, tmp_path):
    with pytest.raises(KeyboardInterrupt):
        run(problem, SIZES, tmp_path, stops_after(3 * EPOCHS + 1))
    path = next(tmp_path.glob("kept-*"))
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)
    heard: list[int] = []
    with pytest.warns(UserWarning, match=r"a member is trained again: .* is damaged"):
        whole = run(problem, SIZES, tmp_path, heard)
    assert_same(whole, wf.marginalise(training(), problem, SIZES), problem[0])


def test_a_second_writer_is_kept_out(problem, tmp_path):
    def report(_: int) -> None:
        with pytest.raises(Exception, match="is being written"):
            run(problem, SIZES, tmp_path)
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run(problem, SIZES, tmp_path, report)


def test_folds_keep_their_members(problem, tmp_path):
    folds, heard = [np.arange(60), np.arange(30, 90)], []
    first = run(problem, [wf.InitialCondition(2)], tmp_path, folds=folds)
    again = run(problem, [wf.InitialCondition(2)], tmp_path, heard, folds=folds)
    assert not heard
    for one, other in zip(first, again, strict=True):
        assert_same(one, other, problem[0])


def test_members_that_diverged_are_kept_too(problem, tmp_path):
    over = [wf.Hyperparameters(points=[dict(lr=1e12), dict(lr=0.01)])]
    wild, heard = training(algorithm=wf.Algorithm("sgd", lr=0.01, batch_size=25)), []
    with pytest.raises(wf.DivergedError):
        run(problem, over, tmp_path, point=wild)
    assert len(run(problem, over, tmp_path, heard, point=wild, on_divergence="drop")) == 1
    assert not heard
    run(problem, over, tmp_path, heard, point=wild, on_divergence="drop")
    assert not heard


def test_redrawn_members_are_kept(problem, tmp_path):
    over = [wf.Hyperparameters(4, lr=torch.distributions.Uniform(0.01, 1.2))]
    wild, heard = training(algorithm=wf.Algorithm("sgd", lr=0.01, batch_size=10), epochs=30), []
    posteriors = []
    for _ in range(2):
        heard.clear()
        with pytest.warns(UserWarning, match="were replaced by others"):
            posteriors.append(run(problem, over, tmp_path, heard, point=wild, on_divergence="redraw"))
    assert not heard
    assert_same(*posteriors, problem[0])
