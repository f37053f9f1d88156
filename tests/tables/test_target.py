"""The target decides the task, says why, and rows without it are known."""

import numpy as np
import pytest

from wherefrom.tables.raw import Format
from wherefrom.tables.reading import read
from wherefrom.tables.target import Target, known


def column(tmp_path, cells):
    path = tmp_path / "data.csv"
    path.write_text("y;x\n" + "".join(f"{cell};1\n" for cell in cells))
    return read(path, Format(separator=";"))


@pytest.mark.parametrize(
    ("cells", "task", "classes"),
    [
        (["a", "b", "a", "b"], "classification", ("a", "b")),
        (["true", "false"] * 3, "classification", ("false", "true")),
        ([0, 1, 1, 0], "classification", (0, 1)),
        ([3, 1, 2] * 5, "classification", (1, 2, 3)),
        (["1.0", "2.0"] * 5, "classification", (1, 2)),
        ([0.5, 1, 2, 3], "regression", ()),
        (range(30), "regression", ()),
        ([*[0] * 60, *[1] * 40, *[2] * 20, *[3] * 9, *[4] * 5, 5, 7], "counts", ()),
        ([*[0] * 9, *[1] * 30, *[2] * 20, *[3] * 9, *[4] * 10, 5, "5.0"], "counts", ()),
        ([0, 1, 2, 3, 4, 5, 6, 7] * 9, "classification", tuple(range(8))),  # codes
        ([*[0] * 60, *[1] * 40, *[2] * 20, *[3] * 9], "classification", (0, 1, 2, 3)),
        ([*[1] * 60, *[2] * 40, *[3] * 20, *[4] * 9, *[5] * 5, 6], "counts", ()),
        ([*[1] * 5, *[2] * 9, *[3] * 20, *[4] * 40, *[5] * 60], "classification", (1, 2, 3, 4, 5)),  # ratings
        ([*[3] * 5, *[4] * 40, *[5] * 60, *[6] * 40, *[7] * 9, 8], "classification", (3, 4, 5, 6, 7, 8)),
        ([*[0] * 60, *[1] * 40, *[2] * 20, 3, 4, 5, *[6] * 40], "classification", tuple(range(7))),
    ],
)
def test_the_task_follows_from_the_target(tmp_path, cells, task, classes):
    target = Target.of(column(tmp_path, cells), "y", None)
    assert (target.task, target.classes) == (task, classes)
    assert target.why


def test_the_user_knows_better(tmp_path):
    counts = column(tmp_path, [*[0] * 60, *[1] * 40, *[2] * 20, *[3] * 9, *[4] * 5, 5])
    assert Target.of(counts, "y", "classification").classes == (0, 1, 2, 3, 4, 5)
    table = column(tmp_path, [3, 1, 2] * 5)
    exposed = Target.of(table, "y", None, exposure="x")
    assert (exposed.task, exposed.why) == ("counts", "it has an exposure")
    assert Target.of(table, "y", "regression").task == "regression"
    assert Target.of(column(tmp_path, list(range(12)) * 3), "y", "classification").classes == tuple(range(12))
    with pytest.raises(ValueError, match="task= is regression or classification"):
        Target.of(table, "y", "ranking")
    with pytest.raises(ValueError, match=r"column 'y', row 2: 'a' is no number"):
        Target.of(column(tmp_path, ["a", "b"] * 3), "y", "regression")


def test_rows_without_a_target_are_known(tmp_path):
    table = column(tmp_path, ["a", "", "b", "NA", "a", "b"])
    values = Target.of(table, "y", None).values(table)
    assert values.tolist() == ["a", None, "b", None, "a", "b"]
    assert known(values).tolist() == [True, False, True, False, True, True]
    table = column(tmp_path, [0.5, "", 2.5])
    np.testing.assert_array_equal(known(Target.of(table, "y", None).values(table)), [True, False, True])


@pytest.mark.parametrize(
    ("cells", "message"),
    [
        (["", "", ""], "column 'y', is empty"),
        (["a"] * 4, "holds 'a' alone"),
        ([1.5] * 4, "always the same"),
        ([f"w{k}" for k in range(40)], "holds 40 different values in 40 rows, too many for classes"),
        ([*(k / 2 for k in range(30)), "none of that"], "row 32: 'none of that' is no number"),
    ],
)
def test_targets_that_teach_nothing(tmp_path, cells, message):
    with pytest.raises(ValueError, match=message):
        Target.of(column(tmp_path, cells), "y", None)


def test_labels_never_seen_do_not_stop_a_prediction(tmp_path):
    target = Target.of(column(tmp_path, [0, 1, 0, 1]), "y", None)
    assert target.values(column(tmp_path, ["1", "7", "what"])).tolist() == [1, 7, "what"]
