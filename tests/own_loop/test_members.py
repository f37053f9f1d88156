"""Posteriors of networks that were trained elsewhere: the same numbers as of those that were trained here."""

import copy
import warnings

import numpy as np
import pandas as pd
import pytest
import torch
from spied import recorded
from torch import nn

import wherefrom as wf
from conftest import mlp, training
from wherefrom.laws import TRADI
from wherefrom.posterior.groups import groups

LAWS = {"swag": wf.SWAG(rank=3), "snapshots": wf.Snapshots(3), "tradi": TRADI()}


def batch_normalised() -> nn.Module:
    return nn.Sequential(nn.Linear(4, 6), nn.BatchNorm1d(6), nn.ReLU(), nn.Linear(6, 1))


def states(posterior: wf.Posterior) -> list[dict[str, torch.Tensor]]:
    """The members as anybody would have kept them."""
    return [posterior.network.layout.views(component.trained.last) for component in posterior.mixture]


def labels(posterior: wf.Posterior) -> list[dict[str, int]]:
    return [component.run.labels for component in posterior.mixture]


def again(posterior: wf.Posterior, members, model, problem, **more) -> wf.Posterior:
    settings = {"labels": labels(posterior), "seed": posterior.seed, "standardise_by": problem}
    return wf.Posterior.from_members(members, model=model, **settings | more)


# ---------------------------------------------------------------------- the same as the original

OVERS = {
    "deep ensemble": wf.recipes.deep_ensemble(3),
    "crossed": [wf.InitialCondition(3), wf.BatchOrder(2)],
    "with settings": [wf.InitialCondition(2), wf.Hyperparameters(2, lr=torch.distributions.Uniform(0.01, 0.02))],
    "one network": [],
}


@pytest.mark.parametrize("dropout", [None, wf.Dropout(), wf.Dropout(0.3)], ids=["", "dropout", "another rate"])
@pytest.mark.parametrize("over", OVERS.values(), ids=OVERS)
def test_the_members_of_a_posterior_make_it_again(over, dropout, problem):
    original = wf.marginalise(training(), problem, [*over, *([dropout] if dropout else [])], seed=5)
    found = again(original, states(original), mlp(), problem, dropout=dropout)
    assert repr(found) == repr(original)
    before, after = (posterior.predict(problem[0], samples=8) for posterior in (original, found))
    assert torch.equal(before.answers, after.answers)
    assert torch.equal(before.mean, after.mean)
    assert torch.equal(before.variance, after.variance)
    if over or dropout:
        assert str(before.sources()) == str(after.sources())
        before, after = (posterior.one_shot(problem[0]) for posterior in (original, found))
        assert torch.equal(before.variance, after.variance)
        assert str(before.sources()) == str(after.sources())


@pytest.mark.parametrize("law", LAWS.values(), ids=LAWS)
def test_recorders_bring_t(law, problem):
    original, recorders = recorded(law, mlp(), training(epochs=12), problem, [wf.InitialCondition(3), wf.Dropout()])
    found = again(original, recorders, mlp(), problem, dropout=wf.Dropout())
    assert found.design.names == ("theta0", "t", "F")
    before, after = (posterior.predict(problem[0], samples=16) for posterior in (original, found))
    torch.testing.assert_close(before.answers, after.answers, rtol=1e-4, atol=1e-5)
    old, new = before.sources(), after.sources()
    assert old.names == new.names
    for name in old.names:
        assert new.overall[name].share == pytest.approx(old.overall[name].share, rel=1e-3, abs=1e-6)
    moments = [posterior.one_shot(problem[0]).variance for posterior in (original, found)]
    torch.testing.assert_close(*moments, rtol=1e-4, atol=1e-7)


@pytest.mark.parametrize("law", LAWS.values(), ids=LAWS)
def test_batch_normalisation_follows_the_weights(law, problem):
    settled = training(batch_normalised, epochs=12)
    original, recorders = recorded(law, batch_normalised, settled, problem, [wf.InitialCondition(2)])
    found = again(original, recorders, batch_normalised, problem, data=problem)
    before, after = (posterior.predict(problem[0], samples=8).answers for posterior in (original, found))
    torch.testing.assert_close(before, after, rtol=1e-3, atol=1e-4)
    without = again(original, recorders, batch_normalised, problem)
    if isinstance(law, wf.Snapshots):  # they bring their own statistics
        torch.testing.assert_close(without.predict(problem[0], samples=8).answers, before, rtol=1e-3, atol=1e-4)
    else:
        with pytest.raises(ValueError, match="batch normalisation needs training rows"):
            without.predict(problem[0])
        later = without.with_data(problem).predict(problem[0], samples=8).answers
        assert torch.equal(later, after)
    assert without.marginalising("theta0").predict(problem[0]).std.min() > 0


def test_parts_are_those_of_any_posterior(problem):
    original, recorders = recorded(wf.SWAG(rank=2), mlp(), training(), problem, [wf.InitialCondition(4), wf.Dropout()])
    found = again(original, recorders, mlp(), problem, dropout=wf.Dropout())
    x = problem[0]
    for names in (("theta0",), ("t",), ("F",), ("theta0", "F")):
        before, after = (posterior.marginalising(*names).predict(x, samples=8) for posterior in (original, found))
        torch.testing.assert_close(before.answers, after.answers, rtol=1e-4, atol=1e-5)
    few = found.select(theta0=[1, 3])
    assert few.draws("theta0") == [1, 3]
    assert torch.equal(few.predict(x, samples=4).answers, found.predict(x, samples=4).answers[[1, 3]])
    assert len(found.laws()) == 4
    assert len(found.sample(5)) == 5
    assert found.check_one_shot(x, samples=200).is_within(1.0)
    assert found.engines == ("elsewhere",)
    assert found.members()["theta0"] == [0, 1, 2, 3]


def test_members_may_come_in_any_order_and_any_form(problem, tmp_path):
    over = [wf.InitialCondition(2), wf.BatchOrder(2)]
    original = wf.marginalise(training(), problem, over)
    saved = states(original)
    network = mlp()()
    network.load_state_dict(saved[0])
    torch.save({"state_dict": {f"model.{k}": v for k, v in saved[1].items()}}, tmp_path / "1.ckpt")
    recorder = wf.Recorder()
    other = mlp()()
    other.load_state_dict(saved[2])
    recorder.update(other)
    recorder.save(tmp_path / "2.safetensors")
    members = [network, tmp_path / "1.ckpt", str(tmp_path / "2.safetensors"), saved[3]]
    order = [2, 0, 3, 1]
    given = [labels(original)[k] for k in order]
    found = again(original, [members[k] for k in order], mlp(), problem, labels=given)
    assert torch.equal(found.predict(problem[0]).answers, original.predict(problem[0]).answers)
    assert labels(found) == labels(original)


def test_families(problem, tmp_path):
    models = {"narrow": mlp(hidden=3), "wide": mlp(hidden=20)}
    original = wf.marginalise(
        training(), problem, [wf.variables.Families(models), wf.InitialCondition(2), wf.Dropout()]
    )
    members = [original.networks[c.run.choices["family"]].layout.views(c.trained.last) for c in original.mixture]
    given = [{"theta0": c.run.labels["theta0"], "F": c.run.choices["family"]} for c in original.mixture]
    found = again(original, members, models, problem, labels=given, dropout=wf.Dropout())
    before, after = (posterior.predict(problem[0], samples=8) for posterior in (original, found))
    assert torch.equal(before.answers, after.answers)
    assert str(before.sources()) == str(after.sources())
    assert "M" in after.sources().names
    found.save(tmp_path)
    assert torch.equal(wf.load(tmp_path, models).predict(problem[0], samples=8).answers, after.answers)
    with pytest.raises(ValueError, match="label every member by its own"):
        again(original, members, models, problem, labels=None)


def test_axes_of_any_name_have_their_share(problem):
    networks = []
    for k in range(6):
        torch.manual_seed(k)
        networks.append(mlp()())
    named = [{"annotator": k % 3, "theta0": k // 3} for k in range(6)]
    posterior = wf.Posterior.from_members(networks, labels=named, model=mlp(), x=problem[0][:3], dropout=wf.Dropout())
    assert posterior.predict(problem[0]).sources().names[:3] == ("theta0", "annotator", "theta0 x annotator")
    keys = {member.name for group in groups(posterior) for member in group.thetas}
    assert len(keys) == 6  # samples of each are drawn on a stream of its own


# ---------------------------------------------------------------------- likelihoods and units


@pytest.mark.parametrize("noise", [None, 0.5, "fit", "predicted"])
def test_noise(noise, problem):
    x, y = problem
    outputs = 2 if noise == "predicted" else 1
    model, likelihood = mlp(outputs=outputs), wf.Regression(noise=noise, held_out=0.2)
    original = wf.marginalise(training(model, likelihood=likelihood), problem, wf.recipes.deep_ensemble(3))
    known = {"likelihood": likelihood, "standardise_by": None, "scaler": original.scaler, "x": x}
    found = again(original, states(original), model, problem, **known)
    if noise == "fit":
        with pytest.raises(ValueError, match=r"fit_noise\(\(x, y\)\)"):
            found.predict(x)
        aside = original.held_out
        fitted = found.fit_noise((aside.x, aside.y))
        found = again(original, states(original), model, problem, **known, held_out=(aside.x, aside.y.flatten()))
        assert torch.equal(fitted.fitted_noise, found.fitted_noise)
        part, whole = (posterior.select(theta0=[0, 1]).predict(x) for posterior in (found, original))
        assert torch.equal(part.variance, whole.variance)
    before, after = (posterior.predict(x) for posterior in (original, found))
    assert torch.equal(before.variance, after.variance)
    assert float(before.nll(y)) == float(after.nll(y))


def test_networks_that_saw_the_data_as_it_was(problem):
    x, y = problem
    original = wf.marginalise(training(standardise=False), problem, wf.recipes.deep_ensemble(3))
    found = again(original, states(original), mlp(), problem, standardise_by=None, x=x[:1])
    assert torch.equal(original.predict(x).mean, found.predict(x).mean)
    assert found.predict(x).mean.shape == y.shape


def test_scalers_of_the_users_own(problem):
    x, y = problem
    original = wf.marginalise(training(), problem, wf.recipes.deep_ensemble(2))
    own = {"x_mean": x.mean(0), "x_std": x.std(0), "y_mean": y.mean(), "y_std": y.std()}
    found = again(original, states(original), mlp(), problem, standardise_by=None, x=x, scaler=own)
    torch.testing.assert_close(found.predict(x).mean, original.predict(x).mean)
    shifted = again(original, states(original), mlp(), problem, standardise_by=None, x=x, scaler={"y_mean": 7.0})
    plain = again(original, states(original), mlp(), problem, standardise_by=None, x=x)
    torch.testing.assert_close(shifted.predict(x).mean, plain.predict(x).mean + 7.0)


@pytest.mark.parametrize(
    ("scaler", "message"),
    [
        ({"x_mean": [0.0, 0.0]}, r"x_mean has the shape \(2,\), which does not fit \(4,\)"),
        ({"y_std": [1.0, 1.0]}, r"y_std has the shape \(2,\), which does not fit \(1,\)"),
        ({"x_std": 0.0}, "deviations above zero"),
        ({"y_mean": float("nan")}, "finite"),
        ({"mean": 0.0}, "no mean"),
    ],
)
def test_scalers_that_are_none(scaler, message, problem):
    with pytest.raises(ValueError, match=message):
        wf.Posterior.from_members([mlp()()], model=mlp(), x=problem[0], scaler=scaler)


def test_frames_are_known_by_their_columns(problem):
    x = pd.DataFrame(problem[0], columns=list("abcd"))
    y = pd.DataFrame({"price": problem[1], "size": problem[1]})
    model = mlp(outputs=2)
    posterior = wf.Posterior.from_members([model(), model()], model=model, x=x[:3], y=y[:3])
    assert posterior.schema.x_names == ("a", "b", "c", "d")
    assert posterior.predict(x).mean.shape == (90, 2)
    assert posterior.schema.y_names == ("price", "size")
    with pytest.raises(ValueError, match="another order"):
        posterior.predict(x[["b", "a", "c", "d"]])
    with pytest.raises(ValueError, match=r"a row of x has shape \(3,\)"):
        posterior.predict(problem[0][:, :3])


def test_the_number_of_targets_follows_from_the_model(problem):
    x = problem[0][:5]
    for outputs, noise, shape in ((1, None, (5,)), (3, None, (5, 3)), (2, "predicted", (5,)), (4, "predicted", (5, 2))):
        model = mlp(outputs=outputs)
        likelihood = wf.Regression(noise=noise)
        posterior = wf.Posterior.from_members([model(), model()], model=model, x=x, likelihood=likelihood)
        assert posterior.predict(x).mean.shape == shape
    with pytest.raises(ValueError, match="the model has 2 outputs"):
        wf.Posterior.from_members([mlp(outputs=2)()], model=mlp(outputs=2), x=x, y=problem[1][:5])


def test_an_mlp_is_sized_by_its_data(problem):
    shape = wf.training.mlp.MLP([12])
    network = shape.sized(4, 1)()
    posterior = wf.Posterior.from_members([network], model=shape, x=problem[0], y=problem[1])
    assert posterior.predict(problem[0]).mean.shape == (90,)
    with pytest.raises(ValueError, match="give y"):
        wf.Posterior.from_members([network], model=shape, x=problem[0])


def test_variances_that_would_be_cut_are_told(problem):
    model = mlp(outputs=2)
    network = model()
    with torch.no_grad():
        network[3].bias[1] = 20.0  # the noise of a y in the tens of thousands
    with pytest.warns(UserWarning, match="log variances beyond"):
        wf.Posterior.from_members([network], model=model, x=problem[0], likelihood=wf.Regression(noise="predicted"))


def test_images_and_words(tmp_path):
    def picture() -> nn.Module:
        return nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten(), nn.Linear(4 * 36, 1))

    x = torch.randn(6, 3, 8, 8, generator=torch.Generator().manual_seed(0))
    shift = {"x_mean": torch.full((3, 1, 1), 0.5), "x_std": torch.full((3, 1, 1), 2.0)}
    networks = [picture().eval(), picture().eval()]
    posterior = wf.Posterior.from_members(networks, model=picture, x=x, scaler=shift)
    with torch.no_grad():
        expected = torch.stack([network((x - 0.5) / 2.0) for network in networks]).mean(0).flatten()
    torch.testing.assert_close(posterior.predict(x).mean, expected.double(), rtol=1e-4, atol=1e-5)

    def words() -> nn.Module:
        return nn.Sequential(nn.Embedding(5, 3), nn.Flatten(), nn.Linear(6, 1))

    rows = torch.randint(5, (7, 2), generator=torch.Generator().manual_seed(0))
    posterior = wf.Posterior.from_members([words(), words()], model=words, x=rows)
    posterior.save(tmp_path)
    assert torch.equal(wf.load(tmp_path, words).predict(rows).mean, posterior.predict(rows).mean)


# ---------------------------------------------------------------------- files, and what cannot be done


@pytest.mark.parametrize("law", [*LAWS.values(), None], ids=[*LAWS, "no law"])
def test_save_and_load(law, problem, tmp_path):
    x = problem[0]
    original, recorders = recorded(law or wf.SWAG(), mlp(), training(epochs=12), problem, [wf.InitialCondition(3)])
    members = recorders if law else states(original)
    named = [{"annotator": k} for k in range(3)]
    likelihood = wf.Regression(noise="fit")
    found = again(
        original, members, mlp(), problem, labels=named, dropout=wf.Dropout(), likelihood=likelihood, held_out=problem
    )
    found.save(tmp_path)
    loaded = wf.load(tmp_path, mlp())
    before, after = (posterior.predict(x, samples=8) for posterior in (found, loaded))
    assert torch.equal(before.samples, after.samples)
    assert torch.equal(before.variance, after.variance)
    assert str(before.sources()) == str(after.sources())
    known = loaded.members().columns  # rows that were held out are not stored, nor what they tell
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "the mean of the trajectory is worse")
        assert [row[: len(known)] for row in found.members().rows] == loaded.members().rows
    assert loaded.design == found.design
    for posterior in (found, loaded, loaded.with_data(problem)):
        with pytest.raises(ValueError, match="were trained elsewhere"):
            posterior.extend(annotator=1)
        with pytest.raises(ValueError, match="were trained elsewhere"):
            posterior.extend(problem, annotator=1)


def test_training_rows_given_again_are_not_held_out(problem, tmp_path):
    """Which rows were aside is not ours to say: all of the given rows were trained on."""
    original = wf.marginalise(training(), problem, wf.recipes.deep_ensemble(2))
    found = again(original, states(original), mlp(), problem, likelihood=wf.Regression(noise="fit"), data=problem)
    found.save(tmp_path)
    loaded = wf.load(tmp_path, mlp(), data=problem)
    assert len(loaded.rows) == len(problem[1])
    assert loaded.held_out is None
    with pytest.raises(ValueError, match="not the data"):
        wf.load(tmp_path, mlp(), data=(problem[0] + 1, problem[1]))
    without = again(original, states(original), mlp(), problem)
    assert len(without.with_data(problem).rows) == 90
    with pytest.raises(ValueError, match="a row of x has shape"):
        without.with_data((problem[0][:, :3], problem[1]))


def test_double_precision(problem):
    original = wf.marginalise(training(), problem, wf.recipes.deep_ensemble(2), dtype=torch.float64)
    found = again(original, states(original), mlp(), problem, dtype=torch.float64)
    assert torch.equal(original.predict(problem[0]).answers, found.predict(problem[0]).answers)
    with pytest.raises(ValueError, match="float32 or"):
        again(original, states(original), mlp(), problem, dtype=torch.float16)


def test_what_the_loop_froze_does_not_vary(problem):
    network = mlp()()
    network[0].requires_grad_(False)
    recorder = wf.Recorder(wf.SWAG(rank=2))
    for k in range(4):
        with torch.no_grad():
            network[3].weight += 0.1 * (-1) ** k
        recorder.update(network)
    posterior = wf.Posterior.from_members([recorder], model=mlp(), x=problem[0])
    assert posterior.predict(problem[0]).std.min() > 0
    sampled = posterior.sample(3)
    assert all(torch.equal(theta["0.weight"], network[0].weight) for theta in sampled)
    assert not torch.equal(sampled[0]["3.weight"], sampled[1]["3.weight"])

    def froze() -> nn.Module:
        made = mlp()()
        made[3].requires_grad_(False)
        return made

    with pytest.raises(ValueError, match=r"was trained in 3.weight, which is frozen"):
        wf.Posterior.from_members([recorder], model=froze, x=problem[0])


def test_a_backbone_that_all_have_in_common_is_kept_once(problem, tmp_path):
    torch.manual_seed(0)
    body = nn.Sequential(nn.Linear(4, 6), nn.Tanh()).requires_grad_(False).eval()

    def on_body() -> nn.Module:
        return nn.Sequential(nn.Sequential(nn.Linear(4, 6), nn.Tanh()).requires_grad_(False).eval(), nn.Linear(6, 1))

    networks = [nn.Sequential(body, nn.Linear(6, 1)) for _ in range(3)]
    posterior = wf.Posterior.from_members(networks, model=on_body, x=problem[0])
    network = posterior.networks[""]
    assert set(network.shared) == {"0.0.weight", "0.0.bias"}
    assert network.head is not None
    x = torch.tensor(problem[0]).float()
    for member, each, answers in zip(posterior.mixture, networks, posterior.predict(problem[0]).answers, strict=True):
        assert member.trained.last.numel() == 7
        torch.testing.assert_close(answers[0], each(x).detach())
    posterior.save(tmp_path / "run")
    loaded = wf.load(tmp_path / "run", on_body)
    assert torch.equal(loaded.predict(problem[0]).answers, posterior.predict(problem[0]).answers)
    others = [nn.Sequential(nn.Linear(4, 6), nn.Tanh()) for _ in range(2)]
    apart = [nn.Sequential(other, nn.Linear(6, 1)) for other in others]
    assert not wf.Posterior.from_members(apart, model=on_body, x=problem[0]).networks[""].shared


def test_live_state_dicts_are_noticed(problem):
    network, kept = mlp()(), []
    for _ in range(2):
        with torch.no_grad():
            network[0].weight += 1
        kept.append(network.state_dict())
    with pytest.raises(ValueError, match=r"member 0 and member 1 have the same weights.*deepcopy"):
        wf.Posterior.from_members(kept, model=mlp(), x=problem[0])


def test_another_function_of_the_same_weights_is_noticed(problem):
    def other() -> nn.Module:
        return nn.Sequential(nn.Linear(4, 12), nn.Tanh(), nn.Dropout(0.1), nn.Linear(12, 1))

    with pytest.raises(ValueError, match="member 0 gives other answers"):
        wf.Posterior.from_members([other()], model=mlp(), x=problem[0])
    with pytest.raises(ValueError, match="member 0 gives other answers"):
        wf.Posterior.from_members([nn.DataParallel(other())], model=mlp(), x=problem[0])


def test_the_users_networks_are_left_alone(problem):
    network = batch_normalised().train()
    before = copy.deepcopy(network.state_dict())
    posterior = wf.Posterior.from_members([network, batch_normalised()], model=batch_normalised, x=problem[0])
    first = posterior.predict(problem[0]).mean
    assert network.training
    assert all(torch.equal(tensor, before[name]) for name, tensor in network.state_dict().items())
    with torch.no_grad():
        network[0].weight.zero_()
    assert torch.equal(posterior.predict(problem[0]).mean, first)


def test_whole_numbers_must_be_the_factorys(problem):
    class Picked(nn.Module):
        def __init__(self, column: int = 0):
            super().__init__()
            self.layer = nn.Linear(1, 1)
            self.register_buffer("column", torch.tensor([column]))

        def forward(self, x):
            return self.layer(x.index_select(1, self.column))

    for member in (Picked(1), Picked(1).state_dict()):
        with pytest.raises(ValueError, match="other numbers in its buffer column"):
            wf.Posterior.from_members([member], model=Picked, x=problem[0])
    wf.Posterior.from_members([Picked(0), Picked(0)], model=Picked, x=problem[0])


def diverged() -> nn.Module:
    network = mlp()()
    with torch.no_grad():
        network[3].bias.fill_(float("nan"))
    return network


ROWS = np.zeros((3, 4))


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda make: make([]), ValueError, "no members"),
        (lambda make: make(mlp()()), TypeError, "members is a list"),
        (lambda make: make(mlp()().state_dict()), TypeError, "members is a list"),
        (lambda make: make("folder"), TypeError, "members is a list"),
        (lambda make: make([mlp()(), 3]), TypeError, "member 1: a member is a Recorder"),
        (lambda make: make([mlp()(), diverged()]), ValueError, "member 1 holds numbers in 3.bias that are not finite"),
        (lambda make: make([mlp()()], x=None), ValueError, "give some rows of x"),
        (lambda make: make([mlp()()], x=np.zeros((0, 4))), ValueError, "no rows"),
        (lambda make: make([mlp()()], x=np.zeros((3, 5))), ValueError, "cannot be run on rows of shape"),
        (
            lambda make: make([mlp()()], data=(np.zeros((3, 5)), np.zeros(3))),
            ValueError,
            r"the shapes \(4,\) and \(5,\)",
        ),
        (
            lambda make: make([mlp()()], scaler={"y_mean": 0.0}, standardise_by=(ROWS, ROWS[:, 0])),
            ValueError,
            "either scaler or standardise_by",
        ),
        (lambda make: make([mlp()()], model=mlp()()), TypeError, "model must be a function"),
        (lambda make: make([mlp(rate=0.0)()], model=mlp(rate=0.0), dropout=wf.Dropout()), ValueError, "dropout"),
        (
            lambda make: make([mlp()(), mlp()()], labels=[{"F": 0}, {"F": 1}], dropout=wf.Dropout()),
            ValueError,
            "F is a label here",
        ),
        (lambda make: make([mlp()(), mlp()()], labels=[{"t": 0}, {"t": 1}]), ValueError, "t is sampled"),
        (lambda make: make([wf.Recorder()]), ValueError, "member 0: this recorder has seen nothing"),
    ],
)
def test_clear_words(call, error, message):
    def make(members, **settings):
        return wf.Posterior.from_members(members, **{"model": mlp(), "x": ROWS} | settings)

    with pytest.raises(error, match=message):
        call(make)


def test_laws_must_agree(problem):
    recorders = []
    for law in (wf.SWAG(rank=2), wf.Snapshots(3), None):
        recorder = wf.Recorder(law)
        for _ in range(3):
            recorder.update(mlp()())
        recorders.append(recorder)
    swag, snapshots, last = recorders
    for other, name in ((snapshots, "Snapshots"), (last, "no law"), (mlp()(), "no law")):
        with pytest.raises(ValueError, match=rf"member 0 was recorded by SWAG.*member 1 by {name}"):
            wf.Posterior.from_members([swag, other], model=mlp(), x=problem[0])
    early = wf.Recorder(wf.SWAG(rank=2))
    early.update(mlp()())
    with pytest.raises(ValueError, match="needs at least 2 updates"):
        wf.Posterior.from_members([swag, early], model=mlp(), x=problem[0])


@pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no GPU")
def test_on_a_gpu(problem):
    networks = [mlp()().cuda() for _ in range(2)]
    posterior = wf.Posterior.from_members(networks, model=mlp(), x=problem[0], device="cuda")
    assert posterior.predict(problem[0]).mean.shape == (90,)
