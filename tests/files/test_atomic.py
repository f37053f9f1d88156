"""The one write: whole or not at all, flushed before it is renamed, and nothing left behind."""

import os
import stat
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
from safetensors.torch import load_file

from wherefrom.files import atomic
from wherefrom.files.errors import FileError
from wherefrom.files.reading import read_tensors


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


def test_what_a_killed_writer_left_is_removed_by_the_next_of_the_same_target(tmp_path):
    for name in (".target.0123456789abcdef", ".target.lock", ".other.0123456789abcdef", ".target.notes"):
        (tmp_path / name).write_text("left")
    atomic.write_text(tmp_path / "target", "it")
    assert {path.name for path in tmp_path.iterdir()} == {"target", ".other.0123456789abcdef", ".target.notes"}


def test_a_second_writer_of_the_same_file_is_kept_out(tmp_path, monkeypatch):
    monkeypatch.setattr(atomic, "PATIENCE", 0.1)
    with atomic.writing(tmp_path / "target") as temporary:
        temporary.write_text("first")
        with pytest.raises(FileError, match=r"target is being written by process \d+ \(this one\) of .* since 20"):
            atomic.write_text(tmp_path / "target", "second")
        atomic.write_text(tmp_path / "other", "another file")
    assert (tmp_path / "target").read_text() == "first"
    assert {path.name for path in tmp_path.iterdir()} == {"target", "other"}


def test_a_second_writer_waits_for_a_short_write(tmp_path):
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda number: atomic.write_text(tmp_path / "target", str(number) * 1000), range(8)))
    assert len(set((tmp_path / "target").read_text())) == 1
    assert [path.name for path in tmp_path.iterdir()] == ["target"]


def test_files_of_a_download_are_moved_together_the_last_one_last(tmp_path, monkeypatch):
    order, replace = [], os.replace
    monkeypatch.setattr(os, "replace", lambda a, b: (order.append(b.name), replace(a, b)))
    with atomic.writing_beside(tmp_path / "a") as temporary:
        for name in ("a", "b", "c"):
            (temporary / name).write_text(name)
    assert order == ["b", "c", "a"]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a", "b", "c"]


def test_every_byte_of_a_sealed_file_counts(tmp_path):
    atomic.write_tensors(tmp_path / "a", {"x": torch.arange(3), "y": torch.tensor([True])}, {"about": "it, é \x1f"})
    whole = (tmp_path / "a").read_bytes()
    metadata, tensors = read_tensors(tmp_path / "a")
    assert metadata["about"] == "it, é \x1f"
    assert tensors["x"].tolist() == [0, 1, 2]
    for bit in range(0, 8 * len(whole), 7):  # of every byte, some bit
        changed = bytearray(whole)
        changed[bit // 8] ^= 1 << bit % 8
        (tmp_path / "a").write_bytes(changed)
        with pytest.raises(FileError, match=str(tmp_path / "a")):
            read_tensors(tmp_path / "a")
