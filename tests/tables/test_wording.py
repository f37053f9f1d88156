"""Options are worded for the door that was used: keywords of wf.fit, or flags of the command."""

import inspect

import pytest

import wherefrom as wf
from made_table import made, write
from wherefrom.cli import fit as command
from wherefrom.tables.wording import language, option, speaking


def test_the_command_speaks_within_its_block_only():
    with speaking("command"):
        assert language() == "command"
    assert language() == "fit"
    assert option("held_out", 0.3) == "held_out=0.3"


def test_wf_fit_never_speaks_of_flags(tmp_path):
    path = write(tmp_path / "data.csv", made(40))
    for wrong in ({"budget": "soon"}, {"held_out": 0.9}, {"over": "x=2"}, {"task": "ranking"}, {"noise": "loud"}):
        with pytest.raises(ValueError, match="=") as told:
            wf.fit(path, "y", **wrong)
        assert "--" not in str(told.value)


@pytest.mark.parametrize("door", [wf.fit, command])
def test_every_option_that_messages_name_is_there(door):
    """Names that messages use are those of both doors; how a file is read is an option of the command alone."""
    names = set(inspect.signature(door).parameters)
    used = {"calibrate", "held_out", "epochs", "samples", "level", "budget", "least", "task", "target", "over"}
    used |= {"recipe", "draws", "dropout", "lr", "batch_size", "hidden", "noise", "number", "text", "date", "missing"}
    assert used <= names
