"""What holds for every variable that is drawn before training. A new one adds a line to CASES."""

import inspect
from collections.abc import Callable

import pytest
import torch
from torch.distributions import Uniform

import wherefrom as wf
from conftest import mlp, training
from wherefrom import variables
from wherefrom.files import codec
from wherefrom.variables import Drawn, Finite

ALGORITHMS = [wf.Algorithm("sgd", lr=0.02, batch_size=30), wf.Algorithm("adam", lr=0.01, batch_size=30)]

CASES: dict[type[Drawn], Callable[[int], Drawn]] = {  # a number of draws -> the variable
    wf.InitialCondition: wf.InitialCondition,
    wf.Hyperparameters: lambda draws: wf.Hyperparameters(draws, lr=Uniform(0.005, 0.02)),
    wf.BatchOrder: wf.BatchOrder,
    wf.Resample: wf.Resample,
    wf.Folds: wf.Folds,
    wf.Algorithms: lambda draws: wf.Algorithms(ALGORITHMS),
    wf.Families: lambda draws: wf.Families({"narrow": mlp(hidden=4), "wide": mlp(hidden=8)}),
}


def test_every_variable_is_here():
    exported = [getattr(variables, name) for name in variables.__all__]
    ours = {each for each in exported if inspect.isclass(each) and issubclass(each, Drawn)}
    assert set(CASES) == ours - {Drawn, Finite}


@pytest.fixture(scope="module", params=CASES, ids=lambda kind: kind.__name__)
def make(request) -> Callable[[int], Drawn]:
    return CASES[request.param]


def fit(problem, *over) -> wf.Posterior:
    return wf.marginalise(training(epochs=3), problem, list(over), seed=4)


def answers(posterior: wf.Posterior, x) -> torch.Tensor:
    return posterior.predict(x[:5], samples=4).mixture.answers


def test_a_draw_is_the_same_whenever_it_is_asked_for(make):
    few, many = make(2), make(5)
    for draw in range(2):
        first, again = few.choices(3, draw), many.choices(3, draw)
        assert {name: str(value) for name, value in first.items()} == {name: str(again[name]) for name in again}


def test_one_draw_is_refused(make):
    if make(2).is_finite:
        return  # its draws are all its values
    with pytest.raises(ValueError, match="one draw holds no doubt"):
        make(1)


def test_it_is_crossed_with_others_and_keeps_their_draws(make, problem):
    variable = make(2)
    other = wf.BatchOrder(2) if variable.slot != "order" else wf.InitialCondition(2)
    both = fit(problem, variable, other)
    assert len(both) == 4
    assert set(both.design.names) == {variable.slot, other.slot}
    assert torch.equal(answers(both, problem[0]), answers(fit(problem, other, variable), problem[0]))
    sources = both.predict(problem[0][:5]).sources()
    assert {variable.slot, other.slot} <= set(sources.names)
    torch.testing.assert_close(sum(sources.values()), torch.ones(5, dtype=torch.float64))
    alone = both.marginalising(variable.slot)
    assert [component.run.labels for component in alone.mixture] == [{variable.slot: 0}, {variable.slot: 1}]


def test_more_draws_leave_the_first_as_they_are(make, problem):
    variable = make(2)
    if not variable.can_grow:
        with pytest.raises(ValueError, match="no more to draw"):
            fit(problem, variable).extend(**{variable.slot: 1})
        return
    grown = fit(problem, variable).extend(**{variable.slot: 1})
    torch.testing.assert_close(answers(grown, problem[0]), answers(fit(problem, make(3)), problem[0]))


def test_files_hold_it(make, problem, tmp_path):
    variable = make(2)
    if not isinstance(variable, wf.Families):  # which holds code
        assert repr(codec.unpack(codec.pack(variable, {}))) == repr(variable)
    posterior = fit(problem, variable)
    posterior.save(tmp_path)
    model = variable.factories if isinstance(variable, wf.Families) else mlp()
    assert torch.equal(answers(wf.load(tmp_path, model), problem[0]), answers(posterior, problem[0]))
