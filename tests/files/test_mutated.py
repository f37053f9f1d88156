"""Files changed at random, with right and wrong digests: a FileError that names the file, or a run that is sound.

`benchmarks/reliability.py mutations` does the same for as long as one likes.
"""

import sys
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

sys.path.append(str(Path(__file__).resolve().parents[2] / "benchmarks"))

from reliable import mutating, trials

pytestmark = pytest.mark.slow

CASES = {"posterior": 700, "table": 150, "recorder": 1150}


@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize("kind", CASES)
def test_files_that_were_changed(kind, tmp_path_factory):
    folder = tmp_path_factory.mktemp(kind)
    read, predict, files = trials.mutated_kind(folder, kind)
    seen = set()

    @settings(max_examples=CASES[kind], derandomize=True, database=None, deadline=None)
    @given(st.integers(0, 2**64).map(trials.random.Random))
    def check(chance):
        mutation = mutating.Mutation.of(files, chance)
        mutating.apply(mutation, files, folder / "tried")
        fault, note = trials.loaded(read, predict, folder / "tried", mutation)
        assert fault is None, mutation.words
        seen.add(note)

    check()
    assert {"refused", "with forged digests loaded, and predict"} <= seen
