"""Values come back from JSON as they were: one table of cases, in which every registered class must be."""

import importlib
import json
import math
import pkgutil
import subprocess
import sys
from dataclasses import dataclass, fields, is_dataclass
from fractions import Fraction

import numpy as np
import pytest
import torch
from torch import distributions

import wherefrom as wf
from reloaded import packed, reloaded
from wherefrom.files import codec
from wherefrom.files.codec import REGISTRY, fits, pack, unpack
from wherefrom.files.stand_in import StandIn
from wherefrom.laws import TRADI, Gaussian, Points
from wherefrom.laws.rotated import Rotated
from wherefrom.posterior.member import Member, Origin
from wherefrom.predictive.background import Background
from wherefrom.predictive.calibration import Conformal, Fit, Temperature, VarianceScale
from wherefrom.predictive.conformal import CrossConformal
from wherefrom.predictive.events import Alerts, Event
from wherefrom.predictive.shape import Shape
from wherefrom.tables.cells import Cells
from wherefrom.tables.columns import Categories, Dropped, Exposure, Quantity, TableEncoder
from wherefrom.tables.dates import Date
from wherefrom.tables.gaps import Donors, Rule
from wherefrom.tables.model import HeldOut
from wherefrom.tables.neighbours import Neighbour
from wherefrom.tables.outside import Surroundings
from wherefrom.tables.scores import Scores
from wherefrom.tables.target import Target
from wherefrom.training import schedules
from wherefrom.training.cohort import Trained
from wherefrom.training.data import Scaler, Schema
from wherefrom.training.joined import JoinedInputs
from wherefrom.training.network import Layout
from wherefrom.training.pieces import Knots, Pieces
from wherefrom.training.sparse import SparseLinear
from wherefrom.training.torch_classes import TorchOptimiser
from wherefrom.variables import Design, Finite, Run
from wherefrom.variables.given import Given

ADAM = wf.Algorithm("adam", lr=0.01, batch_size=100)
SGD = wf.Algorithm("sgd", lr=wf.LogUniform(0.01, 1), batch_size=[10, 20], momentum={0.5: 1, 0.9: 3}, clip=2.0)
OWN = wf.Algorithm(torch.optim.Adafactor, lr=0.1, batch_size=5, eps=(None, 1e-3), schedule=schedules.Step((0.5,)))
POINTS = Points(torch.randn(2, 3))
ALERTS = Alerts(0.1, 0.5, None, 0.2, 0.7, -0.1, 0.05)
EVENT = Event("yes", 0.1, None, (ALERTS,), (ALERTS, ALERTS))
RUN = Run({"theta0": 1}, {"F": 0, "theta0": 1}, {"lr": 0.5, "schedule": schedules.Ramp(0.5), "share": None})
TRAINED = Trained(torch.randn(3), POINTS, [0.5, math.nan], None, 1.5, "torch")
FIT = Fit(20, before=1.5, on_held_out=True)
RULE = Rule(8.0, "near")
OVER = [
    wf.Jointly(wf.InitialCondition(), wf.BatchOrder(), wf.Hyperparameters(lr=[0.1, 0.2]), draws=4),
    wf.Algorithms([ADAM, ADAM.but(lr=0.1)], weights=[1, 3]),
    wf.MLPs(widths=[5, 6]),
    wf.Iterations(wf.SWAG(rank=3), start=0.25, every=4),
    wf.Dropout(0.1, on="weights"),
]
JOINT = [wf.Jointly(wf.MLPs(widths=[5, 6]), wf.Algorithms([ADAM, OWN]), wf.Hyperparameters(lr=[0.1, 0.2]), draws=3)]

CASES = {
    "Points": [POINTS],
    "Gaussian": [Gaussian(torch.randn(3), torch.rand(3), torch.randn(2, 3).bfloat16())],
    "SWAG": [wf.SWAG(rank=3), wf.SWAG(diagonal_only=True, deviations="bfloat16")],
    "TRADI": [TRADI(memory=0.5)],
    "Snapshots": [wf.Snapshots(keep=3)],
    "Laplace": [wf.Laplace(), wf.Laplace("full", 2.0, noise=0.1), wf.Laplace("diagonal", "cv")],
    "Rotated": [Rotated(torch.randn(6), torch.rand(6), torch.randn(13), torch.tensor([[0, -1, 2, 3]]))],
    "Variational": [wf.Variational()],
    **{name: [kind()] for name, kind in schedules.SCHEDULES.items()},
    "Warmup": [schedules.Warmup(0.05, schedules.ConstantFrom(0.6, 0.2, before=schedules.Cyclical(3)))],
    "CropAndFlip": [wf.augment.CropAndFlip(padding=2, flip=False)],
    "Compose": [wf.augment.Compose([wf.augment.CropAndFlip(), wf.augment.Compose([])])],
    "TorchOptimiser": [TorchOptimiser.of(torch.optim.Rprop, {}), TorchOptimiser("elsewhere", None)],
    "Algorithm": [ADAM, SGD, OWN, ADAM.but(replacement=True, clip=1.0)],
    "MLP": [wf.MLP([5, 6], "tanh", 0.1)],
    "RankOne": [wf.rank_one(wf.MLP([5]), networks=2)],
    "Training": [wf.Training(wf.MLP(), OWN, 3, wf.Classification(), False, wf.augment.CropAndFlip())],
    "Layout": [Layout(("w", "b"), (torch.Size([2, 3]), torch.Size([])), 1, 1)],
    "JoinedInputs": [
        JoinedInputs(("a", "b"), ((3, 2), ()), (None, torch.int64), ((), ())),
        JoinedInputs((), (), (), ()),
    ],
    "Schema": [Schema((4,), ("a", "b"), True, 2, (), False, "digest", ("no", 1, True))],
    "Scaler": [Scaler(*torch.randn(4, 2, dtype=torch.float64)), Scaler(*torch.ones(4, 1).double(), logs=True)],
    "Trained": [TRAINED, Trained(torch.randn(2), None, [1.0], 0, 0.0, "native")],
    "Member": [Member(RUN, ADAM, TRAINED)],
    "Origin": [Origin(("theta0 1",), True, (0.25, 0.75))],
    "Regression": [
        wf.Regression("fit", 0.2),
        wf.Regression(0.5, least=-1.0),
        wf.Regression("fit", tails="student", df=3.0),
    ],
    "Classification": [
        wf.Classification(["a", "b"], 0.1, {"a": 1.0, "b": 2.0}),
        wf.Classification([1, 2], class_weights={1: 0.5, 2: 1}),
        wf.Classification(3, class_weights="balanced"),
    ],
    "Counts": [wf.Counts(), wf.Counts(0.5, 0.2), wf.Counts("predicted"), wf.Counts(exposure="years", zeros="inflated")],
    "Ordinal": [wf.Ordinal(), wf.Ordinal(["low", "high"])],
    "Quantiles": [wf.Quantiles([0.1, 0.5])],
    "Several": [wf.Several(stay=wf.Positive(), died=wf.Classification(2))],
    "Positive": [wf.Positive(), wf.Positive(0.2, 0.3, zeros=True), wf.Positive(None)],
    "Survival": [wf.Survival(), wf.Survival(None, 0.2), wf.Survival("predicted", law="weibull")],
    "Fit": [FIT],
    "Shape": [Shape(*torch.rand(2, 1, 2, 1), torch.ones(1, 2, 1), (0.1,), (math.nan,), FIT)],
    "Pieces": [Pieces(), Pieces((0, 2), 4)],
    "Knots": [Knots((1,), torch.rand(1, 5).double())],
    "SparseLinear": [SparseLinear(0.2)],
    "Trees": [wf.Trees(20, 3, 0.2, 2.0, columns=4)],
    "GaussianProcess": [wf.GaussianProcess(50, columns=4)],
    "VarianceScale": [VarianceScale((1.5, 2.0), (0.1, math.nan), FIT)],
    "Temperature": [Temperature(1.5, math.inf, FIT)],
    "Conformal": [Conformal(torch.randn(5, 2, dtype=torch.float64), FIT, is_signed=True)],
    "Finite": [Finite((0.1, schedules.Cosine(), (1, 2)), (0.5, 0.25, 0.25)), Finite.of([1, "a"])],
    "LogUniform": [wf.LogUniform(1e-4, 0.1)],
    "Given": [Given("annotator", 3, True)],
    "Resample": [wf.Resample(3, share=0.5)],
    "Folds": [wf.Folds(5)],
    "CrossConformal": [CrossConformal(torch.ones(3, 1), torch.tensor([0, 1, 1]), "D", Fit(3), is_signed=True)],
    "InitialCondition": [wf.InitialCondition(3), wf.InitialCondition()],
    "BatchOrder": [wf.BatchOrder(2)],
    "Hyperparameters": [
        wf.Hyperparameters(3, lr=wf.LogUniform(0.1, 1), weight_decay=distributions.LogNormal(-4.0, 0.1), clip=[1, 2]),
        wf.Hyperparameters(lr={0.01: 3, 0.1: 1}, batch_size=[10, 100]),
        wf.Hyperparameters(points=[dict(lr=0.1, clip=math.inf), dict(lr=0.2)], weights=[1, 3]),
    ],
    "Algorithms": [
        wf.Algorithms([ADAM, OWN], weights=[1, 3]),
        wf.Algorithms([ADAM, SGD], draws=4),
        wf.Algorithms([ADAM, SGD]),
    ],
    "Families": [wf.MLPs(widths=[5, 6], weights=[1, 3])],
    "Dropout": [wf.Dropout(), wf.Dropout(0.1, on="weights")],
    "Iterations": [wf.Iterations(TRADI(), start="auto"), wf.Iterations(wf.Snapshots(), 3, "epoch")],
    "Axis": [*Design.of(OVER).axes, *Design.of(JOINT).axes],
    "Run": [RUN],
    "Design": [Design.of(OVER), Design.of([])],
    "Quantity": [Quantity("a", "number", 1.5, 2.0, True, True)],
    "Date": [Date("a", 1.5, True, has_season=True, date_format="%d.%m.%Y")],
    "Categories": [Categories("b", ("x", "y"), (0.5, 0.25), True, False, ("z",), 0.25, (4, 2, 1))],
    "Dropped": [Dropped("c", "empty", is_identifier=True)],
    "Exposure": [Exposure("years", 1.5)],
    "TableEncoder": [TableEncoder((Quantity("a", "number", 1.5, math.inf, False), Dropped("c", "empty")))],
    "Target": [Target("y", "regression", why="it has numbers", least=0.0), Target("y", "classification", ("a", 2))],
    "Alerts": [ALERTS],
    "Event": [EVENT],
    "Scores": [
        Scores(3, {"RMSE": 1.5, "NLL": math.nan}, {"RMSE": 0.1}, {}),
        Scores(3, {"AUC": 0.5}, {}, {}, EVENT),
    ],
    "Surroundings": [
        Surroundings(
            ("a",),
            ("number",),
            (2,),
            *(np.ones(1) for _ in range(4)),
            np.ones((2, 1)),
            np.ones(1),
            np.ones(1),
            np.eye(1),
            math.inf,
        )
    ],
    "HeldOut": [HeldOut(np.ones((2, 3)), np.zeros(2), np.array([4, 5]), ("row 4", "row 5"), np.array([0.5, 2.0]), 1)],
    "Cells": [Cells.unlimited(np.ones((2, 3)), (0, 0, 2))],
    "Neighbour": [Neighbour("boosted trees", {"nll": 1.5}, 0.1, 0.02)],
    "DrawingRule": [RULE],
    "Donors": [Donors(np.ones((2, 3)), np.ones((2, 3), dtype=bool), (0, 0, 2), (RULE,) * 3, RULE, 1)],
    "Background": [Background(torch.ones(1, 2, 1), torch.zeros(1, 1), torch.ones(1), ("ward A",))],
}


def drawn(distribution) -> list[torch.Tensor]:
    torch.manual_seed(0)
    return [distribution.sample() for _ in range(3)]


def same(one, other) -> bool:
    """Equal in type and in every number, tensors and missing values included."""
    if isinstance(one, torch.Tensor):
        return isinstance(other, torch.Tensor) and one.dtype == other.dtype and torch.equal(one, other)
    if isinstance(one, np.ndarray):
        return one.dtype == other.dtype and np.array_equal(one, other, equal_nan=True)
    if type(one) is not type(other):
        return False
    if is_dataclass(one):
        return all(same(getattr(one, each.name), getattr(other, each.name)) for each in fields(one))
    if isinstance(one, tuple | list):
        return len(one) == len(other) and all(map(same, one, other))
    if isinstance(one, dict):
        return list(one) == list(other) and all(same(one[key], other[key]) for key in one)
    if isinstance(one, distributions.Distribution):
        return same(drawn(one), drawn(other))
    return one == other or one != one


def test_every_registered_class_has_a_case():
    for module in pkgutil.walk_packages(wf.__path__, "wherefrom."):
        if not module.name.startswith(("wherefrom.__main__", "wherefrom.own_loop.callbacks", "wherefrom.reproduce")):
            importlib.import_module(module.name)
    own = {name for name, kind in REGISTRY.items() if kind.kind.__module__.startswith("wherefrom.")}
    assert own == set(CASES), "give each registered class a case above"


@pytest.mark.parametrize("name", CASES)
def test_a_value_comes_back_as_it_was(name):
    for value in CASES[name]:
        assert type(value) is REGISTRY[name].kind
        again = reloaded(value)
        assert same(value, again)
        assert same(reloaded(again), again)


PLAIN = {
    "numbers": [0, -3, 2**70, True, 0.1, 1e-320, math.inf, -math.inf, math.nan, Fraction(1, 3)],
    "text and nothing": ["", "$", "ü", None],
    "sequences": [(), [], (1, [2, (3,)]), torch.Size([2, 3])],
    "mappings": [{}, {"a": {"b": (1,)}}, {1: "one", (2, 3): [4], None: 5}, {"$": "float", "value": "nan"}],
    "torch": [torch.float32, torch.bfloat16, torch.device("cpu"), torch.eye(2), torch.tensor(2), torch.zeros(0, 3)],
    "arrays": [np.eye(2), np.array(["a"])[:0].astype(bool), np.arange(3, dtype=np.int32)],
    "distributions": [
        distributions.LogNormal(-4.0, 0.1),
        distributions.Uniform(torch.tensor(0.0, dtype=torch.float64), torch.tensor(1.0, dtype=torch.float64)),
        distributions.Gamma(1.0, 2.0),
        distributions.Bernoulli(0.25),
    ],
}


@pytest.mark.parametrize("values", PLAIN.values(), ids=PLAIN)
def test_plain_values_come_back_as_they_were(values):
    for value in (*values, values, tuple(values), {"of": values}):
        assert same(reloaded(value), value)


def test_numbers_of_numpy_become_pythons():
    assert same(reloaded((np.float64(0.5), np.int64(3), np.bool_(True), np.str_("a"))), (0.5, 3, True, "a"))


def test_tensors_are_named_by_their_fields_and_never_overwrite_each_other():
    value = {"a": {"b": torch.zeros(1)}, "a.b": torch.ones(1), "": torch.eye(2)}
    document, tensors = packed(value)
    assert sorted(tensors) == ["", "a.b", "a.b'"]
    assert same(unpack(document, tensors.__getitem__), value)


def test_the_random_numbers_of_others_are_left_alone():
    torch.manual_seed(5)
    expected = torch.rand(3)
    torch.manual_seed(5)
    pack(distributions.LogNormal(0.0, 1.0), {})
    assert torch.equal(torch.rand(3), expected)


# ---------------------------------------------------------------------- what is refused


class Mine:
    def __repr__(self):
        return "mine"


@dataclass(frozen=True)
class Cosine(schedules.Cosine):
    """Called as one of ours, and a subclass of it: another class all the same."""


@pytest.mark.parametrize("value", [Mine(), Cosine(), math.sin, Mine, {1, 2}, b"bytes", 1j, np.array([None])], ids=repr)
def test_unknown_things_are_refused_with_the_name_of_the_field(value):
    with pytest.raises(ValueError, match=r"^training\.model\.1 is .*, which a file cannot hold"):
        pack({"training": {"model": (1, value)}}, {})


def test_a_distribution_that_is_not_made_by_its_parameters_is_refused():
    squared = distributions.TransformedDistribution(
        distributions.Uniform(0.0, 1.0), [distributions.transforms.PowerTransform(torch.tensor(2.0))]
    )
    own = type("Uniform", (distributions.Uniform,), {})(0.0, 1.0)
    for value in (squared, own):
        with pytest.raises(ValueError, match=r"rate is .* which a file cannot hold"):
            pack({"rate": value}, {})


def test_two_classes_cannot_have_one_name():
    with pytest.raises(ValueError, match="there is another class that files call 'SWAG'"):
        codec.stored("SWAG")(Mine)


F32 = {"$": "dtype", "value": "float32"}
DAMAGED = [
    ({"$": "nope"}, "this version does not know 'nope'"),
    ({"$": ["SWAG"]}, "does not know"),
    ({"$": "float"}, "it lacks 'value'"),
    ({"$": "float", "value": "much"}, "much"),
    ({"$": "list", "items": 3}, "not iterable"),
    ({"$": "map", "items": [[1]]}, "not enough values"),
    ({"$": "map", "items": [[{}, 1]]}, "unhashable"),
    ({"$": "tensor", "name": "nowhere"}, "it lacks 'nowhere'"),
    ({"$": "dtype", "value": "save"}, "'save' is not the name of a dtype"),
    ({"$": "device", "value": "toaster"}, "toaster"),
    (
        {"$": "distribution", "name": "kl_divergence", "dtype": F32, "arguments": {}},
        "is not the name of a dist",
    ),
    ({"$": "distribution", "name": "Normal", "dtype": F32, "arguments": {"loc": 0}}, "scale"),
    ({"$": "distribution", "name": "Normal", "dtype": F32, "arguments": {"loc": 0, "scale": -1}}, "scale"),
    ({"$": "SWAG", "rank": "many"}, "rank is 'many', which it cannot be"),
    ({"$": "SWAG", "rank": -1}, "rank must be a whole number"),
    ({"$": "SWAG", "depth": 1}, "depth"),
    ({"$": "Iterations", "law": {"$": "SWAG", "rank": []}}, r"^at\.law: rank is \(\), which it cannot be"),
    ({"$": "Iterations", "law": 3}, "law is 3, which it cannot be"),
    ({"$": "Given"}, "missing"),
    ({"$": "MLP", "hidden": [0]}, "whole numbers"),
    ({"$": "Axis", "name": "theta0", "variables": 3, "draws": 2}, "variables is 3"),
    ({"$": "Algorithm", "name": {"$": "SWAG"}, "lr": 0.1, "batch_size": 1}, "an algorithm is a name"),
    ({"$": "Hyperparameters"}, "give either settings"),
    ({"$": "code", "name": "os.system", "as_written": "it"}, "does not know 'code'"),
    ({"$": "class", "name": "os.system"}, "does not know 'class'"),
]


@pytest.mark.parametrize(("document", "words"), DAMAGED, ids=[words for _, words in DAMAGED])
def test_what_is_damaged_is_named(document, words):
    with pytest.raises(ValueError, match=words) as raised:
        unpack({"at": document}, {}.__getitem__)
    assert str(raised.value).startswith("at")


def test_missing_code_has_a_stand_in_only_where_code_may_be():
    init = {"$": "code", "name": "glorot", "as_written": "<function glorot>"}
    assert isinstance(unpack({"$": "InitialCondition", "draws": 3, "init": init}).init, StandIn)
    with pytest.raises(ValueError, match="draws: this version does not know 'code'"):
        unpack({"$": "InitialCondition", "draws": init})


@pytest.mark.parametrize(
    ("value", "hint", "expected"),
    [
        (3, float, True),
        ((1, "a"), tuple[int, str], True),
        ((1,), tuple[int, str], False),
        ((1, "a"), tuple[int, ...], False),
        ({"a": (1,)}, dict[str, tuple[int, ...]], True),
        ({1: 2}, dict[str, int], False),
        (None, int | None, True),
        (wf.SWAG(), wf.SWAG | TRADI, True),
        (wf.SWAG(), TRADI, False),
        (torch.zeros(1), torch.dtype, False),
        (np.zeros(1), np.typing.NDArray[np.float64], True),
        ((0.0,), np.typing.NDArray[np.float64], False),
    ],
)
def test_values_are_held_against_annotations(value, hint, expected):
    assert fits(value, hint) is expected


def test_loading_imports_every_class_that_files_may_name():
    """A fresh process has imported nothing else: a class that only its makers import could be saved, but not read."""
    ask = "import json; from wherefrom.files.codec import REGISTRY; print(json.dumps(sorted(REGISTRY)))"
    every_module = (
        "import importlib, pkgutil, wherefrom\n"
        "for each in pkgutil.walk_packages(wherefrom.__path__, 'wherefrom.'):\n"
        "    each.name.endswith('__main__') or importlib.import_module(each.name)\n"
    )

    def names(imports: str) -> set[str]:
        ran = subprocess.run([sys.executable, "-c", f"{imports}\n{ask}"], capture_output=True, text=True, check=True)
        return set(json.loads(ran.stdout))

    assert names("import wherefrom.loading, wherefrom.tables.model") == names(every_module)
