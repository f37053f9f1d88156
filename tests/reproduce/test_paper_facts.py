"""The paper's first table on two of its real data sets: 20 folds, 5 members, 400 epochs, within 1.5 printed deviations.

The whole study is `wherefrom reproduce uci`; this is the part of it that guards the framework.
"""

import pytest

from conftest import read_uci
from wherefrom.reproduce import datasets
from wherefrom.reproduce.uci import printed, study
from wherefrom.reproduce.uci.results import mean_and_std
from wherefrom.reproduce.uci.setups import SETUPS


@pytest.mark.real_data
@pytest.mark.parametrize("name", ["boston", "yacht"])
def test_nll_as_printed(name):
    setup, data = SETUPS["main"], read_uci(name)
    splits = datasets.splits(len(data[1]))
    scores = study.score(setup, name, data, splits, study.train(setup, name, data, splits))
    for names in setup.combinations:
        label = "+".join(names)
        nll = [one.value for one in scores if (one.combination, one.metric) == (label, "nll")]
        assert len(nll) == 20
        mean, _ = mean_and_std(nll)
        distance = printed.tables()["main", "nll"][names, name].distance(mean)
        assert distance is not None
        assert abs(distance) < 1.5, (names, mean)
