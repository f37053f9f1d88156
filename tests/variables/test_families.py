"""F: architectures as a variable, masks on weights, and dropout rates that are drawn."""

import itertools

import numpy as np
import pytest
import torch
from torch import nn

import wherefrom as wf
from conftest import training
from wherefrom.posterior.groups import inputs

NEW = np.random.default_rng(3).normal(size=(7, 4))


def small() -> nn.Module:
    return nn.Sequential(nn.Linear(4, 5), nn.Tanh(), nn.Linear(5, 1))


def large() -> nn.Module:
    return nn.Sequential(nn.Linear(4, 20), nn.ReLU(), nn.Dropout(0.1), nn.Linear(20, 1))


def both(problem, *others, weights=None, **changes) -> wf.Posterior:
    over = [wf.Families({"small": small, "large": large}, weights), *others]
    return wf.marginalise(training(epochs=8, **changes), problem, over, seed=1, progress=False)


def test_each_family_is_trained_as_if_it_were_alone(problem):
    found = both(problem, wf.InitialCondition(2), wf.Iterations(wf.SWAG(3)))
    assert [component.run.choices["family"] for component in found.mixture] == ["small", "small", "large", "large"]
    for place, factory in enumerate((small, large)):
        over = [wf.InitialCondition(2), wf.Iterations(wf.SWAG(3))]
        alone = wf.marginalise(training(factory, epochs=8), problem, over, seed=1, progress=False)
        part = found.select(F=place)
        for mine, theirs in zip(alone.mixture, part.mixture, strict=True):
            assert torch.allclose(mine.trained.last, theirs.trained.last, rtol=1e-3, atol=1e-5)
        assert part.network.outputs == 1
        assert torch.allclose(part.one_shot(NEW).mean, alone.one_shot(NEW).mean, rtol=1e-3)


def test_predictions_are_mixed_by_weight(problem):
    found = both(problem, wf.InitialCondition(3), weights={"large": 3, "small": 1})
    parts = [found.select(F=place).predict(NEW) for place in range(2)]
    mixed = found.predict(NEW)
    mean = 0.25 * parts[0].mean + 0.75 * parts[1].mean
    second = 0.25 * (parts[0].variance + parts[0].mean ** 2) + 0.75 * (parts[1].variance + parts[1].mean ** 2)
    assert torch.allclose(mixed.mean, mean)
    assert torch.allclose(mixed.variance, second - mean**2)
    assert torch.allclose(found.one_shot(NEW).mean, mean, rtol=1e-4)
    assert mixed.sources().names == ("F", "theta0", "F x theta0")


def test_samples_and_files(problem, tmp_path):
    found = both(problem, wf.Iterations(wf.SWAG(3)), weights=[1, 2])
    small_one = {"0.weight", "0.bias", "2.weight", "2.bias"}
    assert [set(theta) == small_one for theta in found.sample(6)].count(True) == 2
    found.save(tmp_path)
    again = wf.load(tmp_path, model={"small": small, "large": large})
    assert torch.equal(again.predict(NEW).samples, found.predict(NEW).samples)
    assert torch.equal(again.predict(NEW).mean, found.predict(NEW).mean)
    assert again.members().rows == found.members().rows
    with pytest.raises(ValueError, match="give a dictionary of factories for small, large"):
        wf.load(tmp_path, model=small)
    with pytest.raises(TypeError, match="give model factories for 'large'"):
        wf.load(tmp_path, model={"small": small})
    with pytest.raises(ValueError, match="the model 'small' is not the one"):
        wf.load(tmp_path, model={"small": large, "large": large})
    part = found.select(F=1)
    part.save(tmp_path)
    assert torch.equal(wf.load(tmp_path, model=large).predict(NEW).mean, part.predict(NEW).mean)


def test_families_with_dropout_call_it_m(problem):
    found = wf.marginalise(
        training(epochs=4),
        problem,
        [wf.MLPs(widths=[4, 8], dropout=0.2), wf.Dropout(), wf.Iterations(wf.SWAG(2))],
        progress=False,
    )
    assert found.design.names == ("F", "t", "M")
    for prediction in (found.predict(NEW, 40), found.one_shot(NEW)):
        assert prediction.sources().names == ("F", "t", "M", "t x M")
    assert found.marginalising("M").design.names == ("F",)  # with the family fixed, dropout has its own name back
    assert found.marginalising("F", "t").design.names == ("F", "t")


def test_mlps_take_their_sizes_from_the_data(problem, tmp_path):
    families = wf.MLPs(widths=[3, 6], depths=[1, 2], activations=["relu", "tanh"])
    assert list(families.factories) == [
        f"{'-'.join([str(width)] * depth)} {activation}"
        for width, depth, activation in itertools.product([3, 6], [1, 2], ["relu", "tanh"])
    ]
    found = wf.marginalise(training(wf.MLP([3]), epochs=2), problem, [families], progress=False)
    found.save(tmp_path)  # nothing in it is code
    assert torch.equal(wf.load(tmp_path).predict(NEW).mean, found.predict(NEW).mean)
    own = wf.marginalise(training(wf.MLP([5]), epochs=2), problem, [wf.InitialCondition(2)], progress=False)
    own.save(tmp_path)
    assert torch.equal(wf.load(tmp_path).predict(NEW).mean, own.predict(NEW).mean)


def test_what_families_cannot_be():
    with pytest.raises(ValueError, match="at least two"):
        wf.Families({"only": small})
    with pytest.raises(TypeError, match="must be a function that returns a new network"):
        wf.Families({"a": small, "b": small()})
    with pytest.raises(ValueError, match="weights name a"):
        wf.Families({"a": small, "b": large}, weights={"a": 1})
    with pytest.raises(ValueError, match="positive"):
        wf.Families({"a": small, "b": large}, weights=[1, 0])
    with pytest.raises(ValueError, match="takes its sizes from the data"):
        wf.MLP([3])()


def test_families_drawn_jointly_follow_their_weights(problem):
    families = wf.Families({"a": small, "b": large}, weights=[1, 9]).drawn_jointly()
    drawn = [families.choices(0, draw)["family"] for draw in range(1000)]
    share = drawn.count("b") / len(drawn)
    assert abs(share - 0.9) < 4 * (0.09 / len(drawn)) ** 0.5
    over = [wf.Jointly(wf.Families({"a": small, "b": large}), wf.InitialCondition(), draws=4)]
    found = wf.marginalise(training(epochs=2), problem, over, progress=False)
    assert found.predict(NEW).sources().names == ("F+theta0",)


# ---------------------------------------------------------------------- masks on weights


def test_weights_that_are_dropped_have_the_variance_of_their_masks(problem):
    """Through a linear model: the sum of (w x)^2 rate / (1 - rate)."""
    over = [wf.Dropout(rate=0.2, on="weights")]
    found = wf.marginalise(training(lambda: nn.Linear(4, 1), epochs=10), problem, over, progress=False)
    weight = found.network.layout.views(found.mixture[0].trained.last)["weight"].double()
    x = inputs(found, NEW).double()
    std = ((x * weight).square().sum(1) * 0.25).sqrt() * found.scaler.y_std
    assert torch.allclose(found.one_shot(NEW).std, std, rtol=1e-4)
    many = found.predict(NEW, 20_000)
    assert torch.allclose(many.std, std, rtol=4 * (1 / 20_000) ** 0.5)
    assert torch.allclose(many.mean, found.one_shot(NEW).mean, atol=float(4 * std.max() / 20_000**0.5))


def test_training_drops_weights_too(problem):
    plain, dropped = (
        wf.marginalise(training(small, epochs=8), problem, over, seed=1, progress=False)
        for over in ([wf.InitialCondition(2)], [wf.InitialCondition(2), wf.Dropout(rate=0.3, on="weights")])
    )
    assert dropped.mixture[0].trained.losses[-1] > plain.mixture[0].trained.losses[-1]
    assert dropped.engines == ("torch",)
    assert [site.weight for site in dropped.network.sites] == ["0.weight", "2.weight"]


def test_dropped_weights_are_stored(problem, tmp_path):
    found = wf.marginalise(training(small, epochs=2), problem, [wf.Dropout(rate=0.3, on="weights")], progress=False)
    found.save(tmp_path)
    assert torch.equal(wf.load(tmp_path, model=small).predict(NEW).samples, found.predict(NEW).samples)


def test_bad_wishes_for_dropout():
    with pytest.raises(ValueError, match="needs a rate"):
        wf.Dropout(on="weights")
    with pytest.raises(ValueError, match="units"):
        wf.Dropout(on="edges")


# ---------------------------------------------------------------------- rates that are drawn


def test_members_can_have_their_own_dropout_rates(problem):
    over = [wf.Hyperparameters(points=[{"dropout": 0.05}, {"dropout": 0.4}]), wf.Dropout()]
    found = wf.marginalise(training(large, epochs=8), problem, over, seed=1, progress=False)
    for place, rate in enumerate((0.05, 0.4)):
        alone = wf.marginalise(training(large, epochs=8), problem, [wf.Dropout(rate)], seed=1, progress=False)
        part = found.select(h=place)
        assert torch.allclose(part.mixture[0].trained.last, alone.mixture[0].trained.last, rtol=1e-3, atol=1e-5)
        assert torch.allclose(part.one_shot(NEW).std, alone.one_shot(NEW).std, rtol=1e-3)
    narrow, wide = (found.select(h=place).predict(NEW, 400).std.mean() for place in range(2))
    assert wide > narrow
    assert [row[1] for row in found.members().rows] == [0.05, 0.4]


@pytest.mark.parametrize("rate", [1.5, 1.0, -1.0])
def test_rates_that_are_none_are_refused(problem, rate):
    with pytest.raises(ValueError, match="dropout rate must lie in"):
        wf.marginalise(training(large, epochs=2), problem, [wf.Hyperparameters(dropout=[0.1, rate])], progress=False)


def test_rates_can_be_drawn_only_where_something_is_dropped(problem):
    rates = wf.Hyperparameters(dropout=[0.1, 0.2])
    with pytest.raises(ValueError, match=r"has no nn\.Dropout"):
        wf.marginalise(training(small), problem, [rates])
    with pytest.raises(ValueError, match="leave it out of Dropout"):
        wf.marginalise(training(large), problem, [rates, wf.Dropout(rate=0.3)])
    none = lambda: nn.Sequential(nn.Linear(4, 5), nn.Dropout(0.0), nn.Linear(5, 1))  # noqa: E731
    found = wf.marginalise(training(none, epochs=2), problem, [rates, wf.Dropout()], progress=False)
    assert found.predict(NEW, 40).sources().names == ("h", "F")


@pytest.mark.parametrize("dropout", [wf.Dropout(rate=0.3), wf.Dropout(rate=0.3, on="weights"), wf.Dropout()])
def test_parts_without_dropout_come_back_from_a_file(problem, tmp_path, dropout):
    over = [wf.InitialCondition(2), dropout, wf.Iterations(wf.SWAG(2))]
    found = wf.marginalise(training(large, epochs=4), problem, over, progress=False)
    for names in ((), ("theta0",), ("t",), ("F",), ("theta0", "t"), ("t", "F")):
        part = found.marginalising(*names)
        part.save(tmp_path)
        assert torch.equal(wf.load(tmp_path, model=large).predict(NEW, 8).mean, part.predict(NEW, 8).mean)


def test_scales_of_normalisation_are_not_dropped(problem):
    model = lambda: nn.Sequential(  # noqa: E731
        nn.Linear(4, 6), nn.Unflatten(1, (2, 3)), nn.LayerNorm([2, 3]), nn.Flatten(), nn.Linear(6, 1)
    )
    found = wf.marginalise(training(model, epochs=2), problem, [wf.Dropout(0.1, on="weights")], progress=False)
    assert [site.weight for site in found.network.sites] == ["0.weight", "4.weight"]


def test_a_file_of_several_networks_is_refused(problem, tmp_path):
    pytest.importorskip("onnxscript")
    with pytest.raises(ValueError, match="one ONNX file holds members of one network"):
        both(problem).export_onnx(tmp_path / "model.onnx")


def test_what_mlps_cannot_be():
    for wish in ({"widths": [5, 5]}, {"widths": [5], "depths": [0, 1]}, {"widths": [5]}):
        with pytest.raises(ValueError, match=r"once|at least 1|single MLP"):
            wf.MLPs(**wish)


def test_a_family_without_dropout_is_its_own_only_sub_network(problem):
    found = both(problem, wf.Dropout())
    plain, dropped = (found.select(F=name).predict(NEW, 50).std for name in ("small", "large"))
    assert (plain == 0).all()
    assert (dropped > 0).all()
    assert found.predict(NEW, 50).sources().names == ("F", "M")
    with pytest.raises(ValueError, match="has the draws 0, 1"):
        found.select(F="huge")
