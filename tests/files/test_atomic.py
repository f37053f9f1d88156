"""The one write: whole or not at all, flushed before it is renamed, and nothing left behind."""

import os
import stat

import pytest
import torch
from safetensors.torch import load_file

from wherefrom.files import atomic


def write_folder(path, number):
    with atomic.writing(path) as temporary:
        temporary.mkdir()
        (temporary / "number").write_text(str(number))


def write_bytes(path, number):
    with atomic.writing(path) as temporary:
        temporary.write_bytes(bytes([number]))


WRITES = {  # write(path, number), and how to read the number again
    "text": (lambda path, number: atomic.write_text(path, str(number)), lambda path: int(path.read_text("utf-8"))),
    "bytes": (write_bytes, lambda path: path.read_bytes()[0]),
    "tensors": (
        lambda path, number: atomic.write_tensors(path, {"a": torch.tensor(number)}, {"about": "it"}),
        lambda path: int(load_file(path)["a"]),
    ),
    "folder": (write_folder, lambda path: int((path / "number").read_text())),
}


@pytest.fixture(params=WRITES.values(), ids=WRITES)
def write_and_read(request):
    return request.param


def test_it_is_there_and_nothing_else_is(write_and_read, tmp_path):
    write, read = write_and_read
    write(tmp_path / "target", 7)
    assert read(tmp_path / "target") == 7
    assert [path.name for path in tmp_path.iterdir()] == ["target"]


@pytest.mark.parametrize("kind", ["text", "bytes", "tensors"])
def test_an_existing_file_is_replaced(kind, tmp_path):
    write, read = WRITES[kind]
    for number in (1, 2):
        write(tmp_path / "target", number)
    assert read(tmp_path / "target") == 2
    assert [path.name for path in tmp_path.iterdir()] == ["target"]


@pytest.mark.parametrize("step", ["fsync", "replace"])
@pytest.mark.parametrize("exists", [False, True], ids=["new", "there already"])
def test_a_failure_at_the_end_changes_nothing(write_and_read, step, exists, tmp_path, monkeypatch):
    write, read = write_and_read
    if exists:
        write(tmp_path / "target", 1)

    def broken(*_):
        raise OSError("the disk is full")

    monkeypatch.setattr(os, step, broken)
    with pytest.raises(OSError, match="the disk is full"):
        write(tmp_path / "target", 2)
    assert [path.name for path in tmp_path.iterdir()] == ["target"] * exists
    assert not exists or read(tmp_path / "target") == 1


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt])
def test_a_failure_in_the_middle_changes_nothing(error, tmp_path):
    atomic.write_text(tmp_path / "target", "before")

    def write(make):
        with atomic.writing(tmp_path / "target") as temporary:
            make(temporary)
            raise error

    for make in (lambda path: path.write_text("half"), lambda path: path.mkdir()):
        with pytest.raises(error):
            write(make)
    assert (tmp_path / "target").read_text() == "before"
    assert [path.name for path in tmp_path.iterdir()] == ["target"]


def test_file_and_folder_are_flushed_in_order(tmp_path, monkeypatch):
    """The content before the rename, and the folder, which holds the new name, after it."""
    steps, fsync, replace = [], os.fsync, os.replace

    def flushed(descriptor):
        steps.append("folder" if stat.S_ISDIR(os.fstat(descriptor).st_mode) else "file")
        fsync(descriptor)

    def renamed(*paths):
        steps.append("rename")
        replace(*paths)

    monkeypatch.setattr(os, "fsync", flushed)
    monkeypatch.setattr(os, "replace", renamed)
    atomic.write_text(tmp_path / "target", "it")
    assert steps == ["file", "rename", "folder"]


def test_permissions_are_those_of_any_new_file(write_and_read, tmp_path):
    write, _ = write_and_read
    (tmp_path / "plain").touch()
    write(tmp_path / "target", 1)
    if (tmp_path / "target").is_file():
        assert (tmp_path / "target").stat().st_mode == (tmp_path / "plain").stat().st_mode


def test_tensors_may_share_memory_and_be_transposed(tmp_path):
    whole = torch.arange(12.0).reshape(3, 4)
    tensors = {"a": whole, "again": whole, "row": whole[0], "transposed": whole.T, "none": whole[:0]}
    atomic.write_tensors(tmp_path / "target", tensors)
    for name, tensor in load_file(tmp_path / "target").items():
        assert torch.equal(tensor, tensors[name])


# ---------------------------------------------------------------------- folders that may exist


def write_run(folder, number, last="index"):
    """Two files: the numbers under a new name each time, and an index that names them."""
    with atomic.writing_folder(folder, last=last, owned=["numbers-*", "report"]) as temporary:
        (temporary / f"numbers-{number}").write_text(str(number))
        (temporary / "index").write_text(f"numbers-{number}")


def read_run(folder):
    return (folder / (folder / "index").read_text()).read_text()


def test_files_of_others_stay_and_old_ones_of_ours_go(tmp_path):
    write_run(tmp_path / "a" / "run", 1)
    for name in ("notes", "report"):
        (tmp_path / "a" / "run" / name).write_text("")
    write_run(tmp_path / "a" / "run", 2)
    assert sorted(path.name for path in (tmp_path / "a" / "run").iterdir()) == ["index", "notes", "numbers-2"]
    assert read_run(tmp_path / "a" / "run") == "2"


@pytest.mark.parametrize("fails_at", [0, 1])
def test_a_folder_holds_the_old_run_or_the_new_one(fails_at, tmp_path, monkeypatch):
    write_run(tmp_path, 1)
    replace, count = os.replace, iter(range(9))

    def failing(*paths):
        if next(count) == fails_at:
            raise OSError("the disk is full")
        replace(*paths)

    monkeypatch.setattr(os, "replace", failing)
    with pytest.raises(OSError, match="the disk is full"):
        write_run(tmp_path, 2)
    assert read_run(tmp_path) == "1"
    assert not [path for path in tmp_path.iterdir() if path.name.startswith(".")]


def test_a_mixture_of_two_writes_is_never_taken_for_whole(tmp_path, monkeypatch):
    """Where a file other than the last is overwritten, the last one goes first."""

    def write(number):
        with atomic.writing_folder(tmp_path, last="index", owned=[]) as temporary:
            for name in ("index", "x", "y"):
                (temporary / name).write_text(str(number))

    write(1)
    replace, count = os.replace, iter(range(9))

    def failing(*paths):
        if next(count) == 1:
            raise OSError("the disk is full")
        replace(*paths)

    with monkeypatch.context() as patch:
        patch.setattr(os, "replace", failing)
        with pytest.raises(OSError, match="the disk is full"):
            write(2)
    assert not (tmp_path / "index").exists()
    write(3)
    assert {path.read_text() for path in tmp_path.iterdir()} == {"3"}


def test_a_failure_while_a_folder_is_filled_changes_nothing(tmp_path):
    def write(folder):
        with atomic.writing_folder(folder, "index", []) as temporary:
            (temporary / "x").write_text("half")
            raise KeyboardInterrupt

    for folder in (tmp_path / "new", tmp_path):
        with pytest.raises(KeyboardInterrupt):
            write(folder)
    assert not list(tmp_path.iterdir())
