"""NLL on the UCI sets of laws over the weights, alone and with initial conditions, and what they cost.

    python benchmarks/laws.py --set-up                                once: other packages, in a venv of their own
    .venv-laws/bin/python benchmarks/laws.py --data ../data           all sets that take minutes, 20 folds
    python benchmarks/laws.py --data ../data --sets yacht --folds 5 --out laws.md      other rows on it are kept

Every method trains the same network, of 50 units, for the same number of epochs, on the published splits. The noise is
fitted on rows that are held out of training, in the same way for all. What samples or learns a variance has to know how
noisy y is: its temperature is twice the mean training loss of the plain networks, in y's standard units, and its weight
decay makes a prior of precision 1. Its learning rate is the one of a short list that does best on a tenth of the first
fold's training rows, of which the test rows are no part, and with which no member of any fold diverges. IVON remembers
a tenth of its steps. "alone" is a
member by itself, the mean over three of them; "with theta0" is all five. Processor time is that of training a member,
relative to the plain one's.
laplace-torch makes its approximations of the same three networks; posteriors and ivon-opt train three networks with the
settings of ours, in a plain loop. "theirs - ours" is the difference of the NLL alone, with its standard error over
folds. Which packages are installed is in the table.
"""

from __future__ import annotations

import argparse
import math
import subprocess
import sys
import warnings
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

import wherefrom as wf
from setting import setting
from wherefrom.reproduce import datasets

ROOT = Path(__file__).resolve().parents[1]
SETS = ("yacht", "energy", "boston", "concrete", "wine")
MEMBERS, UNITS, SAMPLES, CYCLES, BATCH, SNAPSHOTS = 5, 50, 100, 4, 100, 20
HEADER = ("| set | method | NLL alone | NLL with theta0 | theirs - ours | time |", "|---|---|---|---|---|---|")
ALONE = 3  # members that are scored by themselves, and networks of another package
MOMENTUM = 0.9  # of plain SGHMC

# laplace-torch and others name torchvision, or other builds of torch, as dependencies: so all are named here instead.
PACKAGES = ("numpy", "numba", "pandas", "safetensors", "scipy", "matplotlib", "tqdm", "orjson", "joblib")
WITHOUT_DEPENDENCIES = (
    *("ivon-opt", "posteriors", "optree", "tensordict", "cloudpickle", "pyvers", "graphviz", "torchopt"),
    *(
        "laplace-torch",
        "curvlinops-for-pytorch",
        "asdfghjkl",
        "backpack-for-pytorch",
        "einops",
        "opt_einsum",
        "einconv",
    ),
    *("linear_operator", "jaxtyping", "wadler_lindig", "unfoldNd", "torchmetrics", "lightning_utilities"),
)


def set_up(folder: Path) -> None:
    """Make a virtual environment with the packages of others, and the torch that runs here."""
    subprocess.run([sys.executable, "-m", "venv", str(folder)], check=True)
    pip = [str(folder / "bin" / "python"), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    subprocess.run([*pip, f"torch=={torch.__version__.split('+')[0]}", *PACKAGES], check=True)
    subprocess.run([*pip, "--no-deps", *WITHOUT_DEPENDENCIES], check=True)
    (path,) = (folder / "lib").glob("python*/site-packages")
    (path / "wherefrom.pth").write_text(f"{ROOT / 'src'}\n")


class Setting(NamedTuple):
    """Numbers that the settings of an algorithm may depend on."""

    temperature: float
    rows: int
    epochs: int
    lr: float

    @property
    def common(self) -> dict[str, float]:
        """The settings of what samples or learns a variance; the prior has a precision of one."""
        decay = self.temperature / self.rows
        return {"lr": self.lr, "batch_size": BATCH, "temperature": self.temperature, "weight_decay": decay}

    @property
    def beta2(self) -> float:
        """Decay of IVON's curvature, which remembers a tenth of the training's steps."""
        return 1 - 10 / (self.epochs * math.ceil(self.rows / BATCH))


class Way(NamedTuple):
    """A method: its variables beside theta0, and what of the training is its own."""

    over: list[Any]
    method: str = "monte_carlo"
    algorithm: Callable[[Setting], wf.Algorithm] = lambda setting: wf.Algorithm("adam", lr=0.01, batch_size=BATCH)
    model: Any = wf.MLP([UNITS])
    rates: tuple[float, ...] = ()  # of which one is chosen


def sampling(setting: Setting) -> wf.Algorithm:
    """Sample by SGHMC, preconditioned, in cycles."""
    cycles = wf.schedules.Cyclical(cycles=CYCLES)
    return wf.Algorithm("sghmc", preconditioned=True, schedule=cycles, noise_below=0.2, **setting.common)


def sampling_plainly(setting: Setting) -> wf.Algorithm:
    """Sample by SGLD as it was published."""
    return wf.Algorithm("sgld", **setting.common)


def sampling_with_momentum(setting: Setting) -> wf.Algorithm:
    """Sample by SGHMC as it was published."""
    return wf.Algorithm("sghmc", momentum=MOMENTUM, **setting.common)


def learning(setting: Setting) -> wf.Algorithm:
    """Learn a Gaussian by IVON."""
    return wf.Algorithm("ivon", hess_init=0.5, beta2=setting.beta2, **setting.common)


PLAIN, KRON, DIAGONAL = "one network, or a deep ensemble", "Laplace, kron", "Laplace, diagonal"
SGLD, SGHMC, IVON = "SGLD", "SGHMC", "IVON"
WAYS = {
    PLAIN: Way([]),
    "SWAG": Way(wf.recipes.swag()),
    DIAGONAL: Way(wf.recipes.laplace("diagonal"), "linearised"),
    KRON: Way(wf.recipes.laplace("kron"), "linearised"),
    "Laplace, kron, by cross-validation": Way(wf.recipes.laplace("kron", "cv"), "linearised"),
    "Laplace, kron, sampled": Way(wf.recipes.laplace("kron")),
    "Laplace, last layer": Way(wf.recipes.laplace("last_layer"), "linearised"),
    "Laplace, full": Way(wf.recipes.laplace("full"), "linearised"),
    "cyclical SGHMC": Way(wf.recipes.cyclical_sg_mcmc(CYCLES), algorithm=sampling, rates=(5e-4, 2e-3, 8e-3)),
    SGLD: Way([wf.Iterations(wf.Snapshots(SNAPSHOTS))], algorithm=sampling_plainly, rates=(0.03, 0.1, 0.3)),
    SGHMC: Way([wf.Iterations(wf.Snapshots(SNAPSHOTS))], algorithm=sampling_with_momentum, rates=(0.001, 0.003)),
    IVON: Way(wf.recipes.variational(), algorithm=learning, rates=(0.1, 0.3, 1.0)),
    "BatchEnsemble": Way(wf.recipes.batch_ensemble(), model=wf.rank_one(wf.MLP([UNITS]), networks=4)),
}


class Score(NamedTuple):
    alone: float  # mean over some members
    together: float
    seconds: float  # of a member


def trained(way: Way, data: tuple[Any, Any], folds: list[Any], setting: Setting) -> list[wf.Posterior]:
    training = wf.Training(way.model, way.algorithm(setting), setting.epochs, wf.Regression(noise="fit"))
    over = [wf.Jointly(wf.InitialCondition(), wf.BatchOrder(), draws=MEMBERS), *way.over]
    compute = wf.Compute(progress=False)
    return wf.marginalise_folds(training, data, [train for train, _ in folds], over, compute=compute)


def rated(way: Way, data: tuple[Any, Any], fold: Any, setting: Setting) -> list[Setting]:
    """Return the setting with each learning rate, the one first that does best on a tenth of a fold's training rows."""
    if not way.rates:
        return [setting]
    rows = np.random.default_rng(0).permutation(fold[0])
    count = len(rows) // 10
    inner = [(rows[count:], rows[:count])]

    def score(setting: Setting) -> float:
        try:
            return next(scored(way, trained(way, data, inner, setting), data, inner)).together
        except wf.DivergedError:
            return math.inf

    return sorted((setting._replace(lr=lr) for lr in way.rates), key=score)


def trained_by_the_best(
    way: Way, data: tuple[Any, Any], folds: list[Any], settings: list[Setting]
) -> tuple[Setting, list[wf.Posterior]]:
    """Train with the first of some settings with which no member diverges."""
    *others, last = settings
    for each in others:
        try:
            return each, trained(way, data, folds, each)
        except wf.DivergedError as error:
            print(f"{each}: {str(error).split(':')[0]}", file=sys.stderr)
    return last, trained(way, data, folds, last)


def scored(way: Way, posteriors: list[wf.Posterior], data: tuple[Any, Any], folds: list[Any]) -> Iterator[Score]:
    x, y = data
    for posterior, (_, test) in zip(posteriors, folds, strict=True):
        first = posterior.design.axes[0].name
        parts = [posterior.select(**{first: [draw]}) for draw in posterior.draws(first)[:ALONE]]
        parts = [part.fit_noise(part.held_out, method=way.method) for part in (*parts, posterior)]
        nll = [float(part.predict(x[test], SAMPLES, method=way.method).nll(y[test])) for part in parts]
        seconds = sum(member.trained.seconds for member in posterior.mixture) / len(posterior)
        yield Score(float(np.mean(nll[:-1])), nll[-1], seconds)


class Given(NamedTuple):
    """A fold as other packages get it, in standard units, and how an answer is scored."""

    posterior: wf.Posterior
    data: tuple[Any, Any]
    fold: Any
    number: int  # of the fold

    @property
    def rows(self) -> tuple[Tensor, Tensor]:
        """The rows that the first network was trained on, without those that were held out."""
        x, y = self.data
        held_out = self.posterior.held_out.x.numpy()
        train = [row for row in self.fold[0] if not (held_out == x[row]).all(1).any()]
        y_train = self.posterior.scaler.y(torch.as_tensor(y[train])[:, None], torch.float32)
        return self._inputs(x[train]), y_train

    def _inputs(self, x: Any) -> Tensor:
        return self.posterior.scaler.x(torch.as_tensor(x), torch.float32)

    def network(self, number: int) -> nn.Module:
        """A network with initial weights, which no other fold begins with."""
        torch.manual_seed(ALONE * self.number + number)
        return wf.MLP([UNITS]).sized(self.data[0].shape[1], 1)()

    def nll(self, moments: Callable[[Tensor], tuple[Tensor, Tensor]]) -> float:
        """NLL of the test rows, with the noise that makes the held-out rows most likely, as for ours.

        moments: means and variances of the network's outputs.  # (rows, inputs) -> (rows,), (rows,)
        """
        scaler, held_out, (x, y) = self.posterior.scaler, self.posterior.held_out, self.data
        test = self.fold[1]
        of_held_out, of_test = (moments(self._inputs(rows)) for rows in (held_out.x, x[test]))

        def log_likelihood(given: tuple[Tensor, Tensor], y: Any, noise: float) -> float:
            spread = (given[1].double() + noise).sqrt() * float(scaler.y_std)
            centre = given[0].double() * float(scaler.y_std) + float(scaler.y_mean)
            return float(torch.distributions.Normal(centre, spread).log_prob(torch.as_tensor(y).flatten()).mean())

        best = max(np.logspace(-6, 1, 200), key=lambda noise: log_likelihood(of_held_out, held_out.y, noise))
        return -log_likelihood(of_test, y[test], best)


def by_laplace_torch(structure: str, given: Given, number: int) -> float:
    """NLL of laplace-torch on one of a fold's networks, with its own choice of the prior."""
    from laplace import Laplace
    from laplace.curvature import CurvlinopsGGN

    member, layout = given.posterior.mixture[number], given.posterior.networks[""].layout
    network = nn.Sequential(nn.Linear(given.data[0].shape[1], UNITS), nn.ReLU(), nn.Linear(UNITS, 1))
    network.load_state_dict(layout.views(member.trained.last))
    x, y = given.rows
    with torch.no_grad():
        noise = float((network(x) - y).square().mean().sqrt())  # of the residuals, as ours is
    loader = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(x, y), batch_size=256)
    theirs = Laplace(network, "regression", "all", structure, sigma_noise=noise, backend=CurvlinopsGGN)
    theirs.fit(loader)
    theirs.optimize_prior_precision()

    def moments(x: Tensor) -> tuple[Tensor, Tensor]:
        mean, variance = theirs(x)
        return mean.flatten(), variance.flatten()

    return given.nll(moments)


def by_ivon_opt(setting: Setting, given: Given, number: int) -> float:
    """NLL of a network that ivon-opt has trained, with the settings of ours."""
    from ivon import IVON as Optimiser

    x, y = given.rows
    network = given.network(number)
    decay, count = setting.common["weight_decay"], len(x) / setting.temperature
    optimiser = Optimiser(
        network.parameters(), lr=setting.lr, ess=count, hess_init=0.5, beta2=setting.beta2, weight_decay=decay
    )
    for _ in range(setting.epochs):
        for some in torch.randperm(len(x)).split(BATCH):
            with optimiser.sampled_params(train=True):
                optimiser.zero_grad()
                (network(x[some]) - y[some]).square().mean().backward()
            optimiser.step()

    def moments(x: Tensor) -> tuple[Tensor, Tensor]:
        outputs = []
        for _ in range(SAMPLES):
            with torch.no_grad(), optimiser.sampled_params():
                outputs.append(network(x).flatten())
        each = torch.stack(outputs)
        return each.mean(0), each.var(0, correction=0)

    return given.nll(moments)


def by_posteriors(kind: str, setting: Setting, given: Given, number: int) -> float:
    """NLL of samples that posteriors' SGLD or SGHMC has drawn, with the settings of ours.

    Its SGHMC steps by  m <- m + e (g - alpha m),  theta <- theta + e m:  a learning rate of e^2 and a momentum of
    1 - e alpha, as optimisers have them. Both are computed from the old m and theta, which is stable only where the
    learning rate times the curvature is below 1 - momentum, and ours below 2 (1 + momentum): hence the small rates.
    """
    from posteriors.sgmcmc import sghmc, sgld

    x, y = given.rows
    network = given.network(number)
    decay = setting.common["weight_decay"]

    def log_posterior(parameters: dict[str, Tensor], batch: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor]:
        loss = (torch.func.functional_call(network, parameters, (batch[0],)) - batch[1]).square().mean()
        return -loss - decay / 2 * sum(p.square().sum() for p in parameters.values()), torch.empty(0)

    temperature, e = setting.temperature / len(x), math.sqrt(setting.lr)
    builds = {
        SGLD: lambda: sgld.build(log_posterior, lr=setting.lr, temperature=temperature),
        SGHMC: lambda: sghmc.build(log_posterior, lr=e, alpha=(1 - MOMENTUM) / e, temperature=temperature, momenta=0.0),
    }
    transform = builds[kind]()
    state = transform.init({name: p.detach().clone() for name, p in network.named_parameters()})
    second_half = np.linspace(setting.epochs // 2, setting.epochs - 1, SNAPSHOTS).round()
    samples = []
    for epoch in range(setting.epochs):
        for some in torch.randperm(len(x)).split(BATCH):
            state, _ = transform.update(state, (x[some], y[some]), inplace=True)
        if epoch in second_half:
            samples.append({name: p.detach().clone() for name, p in state.params.items()})

    def moments(x: Tensor) -> tuple[Tensor, Tensor]:
        with torch.no_grad():
            each = torch.stack([torch.func.functional_call(network, p, (x,)).flatten() for p in samples])
        return each.mean(0), each.var(0, correction=0)

    return given.nll(moments)


class Peer(NamedTuple):
    """Another package: its name to import, the method of ours whose settings it takes, and how it is scored."""

    package: str
    way: str
    score: Callable[[Setting, Given, int], float]


PEERS = {
    "laplace-torch, kron": Peer("laplace", KRON, lambda _, *given: by_laplace_torch("kron", *given)),
    "laplace-torch, diag": Peer("laplace", DIAGONAL, lambda _, *given: by_laplace_torch("diag", *given)),
    "posteriors, SGLD": Peer("posteriors", SGLD, partial(by_posteriors, SGLD)),
    "posteriors, SGHMC": Peer("posteriors", SGHMC, partial(by_posteriors, SGHMC)),
    "ivon-opt": Peer("ivon", IVON, by_ivon_opt),
}


def with_error(values: Sequence[float]) -> str:
    error = np.std(values, ddof=1) / len(values) ** 0.5 if len(values) > 1 else float("nan")
    return f"{np.mean(values):.3f} ± {error:.3f}"


def page(name: str, data: tuple[Any, Any], folds: list[Any], epochs: int, ways: list[str]) -> list[str]:
    """Train the plain networks and other methods on a set; return their rows of the table."""
    setting = Setting(1.0, len(folds[0][0]), epochs, math.nan)
    plain = trained(WAYS[PLAIN], data, folds, setting)
    losses = [member.trained.losses[-1] for posterior in plain for member in posterior.mixture]
    setting, settings, ours = setting._replace(temperature=2 * float(np.mean(losses))), {}, {}
    lines, unit = [], float("nan")
    for label, way in [(label, way) for label, way in WAYS.items() if label in (PLAIN, *ways)]:
        settings[label], posteriors = setting, plain
        if label != PLAIN:
            rates = rated(way, data, folds[0], setting)
            settings[label], posteriors = trained_by_the_best(way, data, folds, rates)
        scores = list(scored(way, posteriors, data, folds))
        seconds = float(np.mean([score.seconds for score in scores]))
        unit = seconds if label == PLAIN else unit
        alone, together = (with_error([score[k] for score in scores]) for k in range(2))
        ours[label] = np.array([score.alone for score in scores])
        called = f"{label}, lr {settings[label].lr:g}" if way.rates else label
        lines.append(f"| {name} | {called} | {alone} | {together} | . | {seconds / unit:.1f} |")
        print(lines[-1], flush=True)
    for label, peer in PEERS.items():
        if find_spec(peer.package) is None or peer.way not in settings:
            continue
        given = [Given(plain[number], data, fold, number) for number, fold in enumerate(folds)]
        values = np.array([np.mean([peer.score(settings[peer.way], each, k) for k in range(ALONE)]) for each in given])
        differences = with_error(values - ours[peer.way])
        lines.append(f"| {name} | {label} | {with_error(values)} | . | {differences} | . |")
        print(lines[-1], flush=True)
    return lines


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--set-up", action="store_true", help="make a virtual environment with other packages, and end")
    parser.add_argument("--peers", type=Path, default=ROOT / ".venv-laws", help="that virtual environment")
    parser.add_argument("--data", type=Path, default=Path("data"), help="the folder that holds uci/<set>/data.csv.gz")
    parser.add_argument("--sets", nargs="+", default=list(SETS))
    parser.add_argument("--folds", type=int, default=20)
    parser.add_argument("--epochs", type=int, default=100)
    parser.add_argument("--ways", nargs="+", default=list(WAYS), help="only these, beside the plain networks")
    parser.add_argument("--out", type=Path)
    asked = parser.parse_args()
    if asked.set_up:
        set_up(asked.peers)
        return
    warnings.filterwarnings("ignore")
    torch.set_num_threads(1)
    print("\n".join(HEADER))
    lines = {} if asked.out is None else rows_on(asked.out, how(asked.folds, asked.epochs))
    for name in asked.sets:
        x, y = datasets.load(name, asked.data)
        new = page(name, (x, y), datasets.splits(len(y), asked.folds), asked.epochs, asked.ways)
        lines |= {key(line): line for line in new}
        if asked.out is not None:
            asked.out.write_text(written(lines, asked.folds, asked.epochs), encoding="utf-8")


def how(folds: int, epochs: int) -> str:
    return f"- {folds} folds, {epochs} epochs, {MEMBERS} members; mean NLL ± its standard error over folds"


def key(line: str) -> tuple[str, str]:
    """Return the set and the method that a row of the table is about."""
    name, method = line.split(" | ")[:2]
    return name.removeprefix("| "), method.split(", lr ")[0]


def rows_on(page: Path, how: str) -> dict[tuple[str, str], str]:
    """Return the rows that a page has already."""
    lines = page.read_text(encoding="utf-8").splitlines() if page.exists() else []
    if lines and how not in lines:
        raise SystemExit(f"{page} has results of other folds, epochs or members: give another --out")
    return {key(line): line for line in lines if line.startswith(tuple(f"| {name} |" for name in SETS))}


def written(lines: dict[tuple[str, str], str], folds: int, epochs: int) -> str:
    """Return the results as a page, with what was left out."""
    about = setting("torch", "numba", "laplace-torch", "posteriors", "ivon-opt", rounds=1).rsplit("\n", 1)[0]
    every = [(name, method) for name in SETS for method in (*WAYS, *PEERS)]
    sets = [name for name in SETS if any(key[0] == name for key in lines)]
    missing = [name for name in SETS if name not in sets]
    missing += [f"{method} on {name}" for name, method in every if name in sets and (name, method) not in lines]
    return "\n".join(
        [
            *("# Laws on the UCI sets", "", "Written by `benchmarks/laws.py`.", ""),
            *(" ".join(paragraph.split()) + "\n" for paragraph in (__doc__ or "").split("\n\n")[2:]),
            about,
            how(folds, epochs),
            f"- left out: {', '.join([*missing, 'kin8nm, naval, power and protein'])}, for their time",
            "- sets and methods may be of several runs; only ratios of times within one set mean anything",
            "",
            *HEADER,
            *(lines[each] for each in every if each in lines),
            "",
        ]
    )


if __name__ == "__main__":
    main()
