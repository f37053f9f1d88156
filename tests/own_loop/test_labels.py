"""Labels: a full crossing of whatever names, or an explanation."""

import pytest
from torch import nn

from wherefrom.own_loop.labels import Labelled
from wherefrom.variables import Families
from wherefrom.variables.given import Given


def labels(**axes: list[int]) -> list[dict[str, int]]:
    found: list[dict[str, int]] = [{}]
    for name, draws in axes.items():
        found = [label | {name: draw} for label in found for draw in draws]
    return found


def test_members_are_numbered_if_nothing_is_said():
    labelled = Labelled.of(None, 3)
    assert [axis.name for axis in labelled.axes] == ["theta0"]
    assert [run.labels for run in labelled.runs] == [{"theta0": 0}, {"theta0": 1}, {"theta0": 2}]
    assert labelled.axes[0].variables == (Given("theta0", 3),)
    assert not Labelled.of(None, 1).axes


def test_axes_stand_in_the_order_of_the_framework_and_runs_in_theirs():
    given = labels(annotator=[0, 1], h=[0, 1], theta0=[0, 1, 2])[::-1]
    labelled = Labelled.of(given, 12)
    assert [axis.name for axis in labelled.axes] == ["theta0", "h", "annotator"]
    drawn = [tuple(run.labels.values()) for run in labelled.runs]
    assert drawn == sorted(drawn)
    assert all(given[place] == run.labels for place, run in zip(labelled.places, labelled.runs, strict=True))


def test_every_run_has_streams_of_its_own():
    labelled = Labelled.of(labels(theta0=[0, 1], annotator=[0, 1], seed=[4, 7]), 8)
    assert len({run.name for run in labelled.runs}) == 8


def test_joint_names_are_those_of_jointly():
    labelled = Labelled.of([{"order+theta0": k} for k in range(3)], 3)
    assert [axis.name for axis in labelled.axes] == ["theta0+order"]
    assert labelled.runs[2].slots["theta0"] == labelled.runs[2].slots["order"] == 2
    assert labelled.runs[2].name == ("theta0", 2, "order", 2)


def test_draws_keep_their_numbers_and_one_draw_is_no_axis():
    labelled = Labelled.of(labels(theta0=[42, 43], h=[5]), 2)
    assert [(axis.name, axis.draws) for axis in labelled.axes] == [("theta0", 2)]
    assert labelled.runs[1].labels == {"theta0": 43}
    assert labelled.runs[1].slots["h"] == 5


def test_finite_axes():
    labelled = Labelled.of(labels(theta0=[0, 1], h=[0, 1]), 4, finite=["h"])
    assert [axis.is_finite for axis in labelled.axes] == [False, True]
    with pytest.raises(ValueError, match="finite names 'order'"):
        Labelled.of(None, 2, finite=["order"])


def test_families_go_by_name():
    models = {"narrow": lambda: nn.Linear(1, 1), "wide": lambda: nn.Linear(1, 2), "deep": lambda: nn.Linear(1, 3)}
    given = [{"theta0": k, "F": name} for k in (0, 1) for name in ("deep", "narrow")]
    labelled = Labelled.of(given, 4, families=models)
    assert [axis.name for axis in labelled.axes] == ["F", "theta0"]
    (families,) = labelled.axes[0].variables
    assert isinstance(families, Families)
    assert list(labelled.families) == ["narrow", "deep"]  # there are no others
    for run in labelled.runs:
        assert families.choices(0, run.labels["F"]) == run.choices
    assert [run.choices["family"] for run in labelled.runs] == ["narrow", "narrow", "deep", "deep"]
    alone = Labelled.of([{"F": "wide", "theta0": k} for k in range(2)], 2, families=models)
    assert [axis.name for axis in alone.axes] == ["theta0"]
    assert all(not run.choices for run in alone.runs)
    with pytest.raises(ValueError, match="member 1 is of the family 'flat', but the models are narrow, wide, deep"):
        Labelled.of([{"F": "deep"}, {"F": "flat"}], 2, families=models)


CROSSED = "not crossed: there is no member with theta0 1, h 1"


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ([{"theta0": 0}], "2 members, but 1 labels"),
        ([{"theta0": 0}, {"theta0": 0}], "members 0 and 1 have the same label, theta0 0"),
        ([{}, {}], "members 0 and 1 have the same label, nothing"),
        ([{"theta0": 0}, {"h": 0}], "all members need the same labels"),
        ([{"theta0": 0, "h": 0}, {"theta0": 1, "h": 1}], 'one share: label the members {"theta0\\+h": 0}'),
        ([{"theta0": "a"}, {"theta0": "b"}], "known by whole numbers"),
        ([{"theta0": True}, {"theta0": False}], "known by whole numbers"),
        ([{"theta0": -1}, {"theta0": 0}], "known by whole numbers"),
        ([{"t": 0}, {"t": 1}], "t is sampled within each member"),
        ([{"noise": 0}, {"noise": 1}], "part of the likelihood"),
        ([{"theta0 x h": 0}, {"theta0 x h": 1}], "labels are names of variables"),
        ([{"theta0": 0, "theta0+h": 0}, {"theta0": 1, "theta0+h": 1}], "each of them once"),
        ([{"": 0}, {"": 1}], "labels are names of variables"),
    ],
)
def test_what_is_no_labelling(given, message):
    with pytest.raises(ValueError, match=message):
        Labelled.of(given, 2)


def test_a_hole_is_named():
    with pytest.raises(ValueError, match=CROSSED):
        Labelled.of(labels(theta0=[0, 1], h=[0, 1])[:3], 3)
    with pytest.raises(TypeError, match="a label is a dictionary"):
        Labelled.of([0, 1], 2)
