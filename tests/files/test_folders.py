"""Run folders: one rename switches, a reader never sees a mixture, a second writer is kept out, remains are removed."""

import os
import threading

import pytest
import torch

from wherefrom.files import folders
from wherefrom.files.errors import BusyError, FileError, MissingFileError
from wherefrom.files.folders import MANIFEST, Run


def write(folder, number, count=2):
    """A run of so many files, each of which holds the same number."""
    with folders.writing(folder, is_new=True) as run:
        for k in range(count):
            run.put_tensors(f"part-{k}.safetensors", {"a": torch.full((3,), number)}, {"number": str(number)})
        run.put_json("about.json", {"number": number, "count": count})
        run.commit()


def load(run):
    """Return the number of a run, and fail if its files are of two versions."""
    about = run.json("about.json")
    numbers = {about["number"]}
    for k in range(about["count"]):
        metadata, tensors = run.tensors(f"part-{k}.safetensors")
        numbers |= {int(metadata["number"]), *tensors["a"].tolist()}
    (number,) = numbers
    return number


def read(folder):
    return folders.reading(folder, load)


def names(folder):
    return {path.name for path in folder.iterdir()}


def files(folder):
    return {MANIFEST, *(entry.file_name(name) for name, entry in Run.open(folder).files.items())}


def test_a_new_version_replaces_the_old_one_and_other_files_stay(tmp_path):
    folder = tmp_path / "a" / "run"
    write(folder, 1, count=3)
    before = names(folder)
    (folder / "notes.txt").write_text("mine")
    write(folder, 2)
    assert read(folder) == 2
    assert names(folder) == files(folder) | {"notes.txt"}
    assert names(folder) & before == {MANIFEST}


def test_files_are_added_one_at_a_time(tmp_path):
    with folders.writing(tmp_path) as run:
        for k in range(3):
            run.put_json(f"part-{k}.json", {"k": k})
            run.commit()
            assert list(Run.open(tmp_path).files) == [f"part-{j}.json" for j in range(k + 1)]
    with folders.writing(tmp_path) as run:
        run.put_json("part-0.json", {"k": 10})
        run.drop("part-1.json")
        run.commit()
    now = Run.open(tmp_path)
    assert {name: now.json(name)["k"] for name in now.files} == {"part-0.json": 10, "part-2.json": 2}
    assert names(tmp_path) == files(tmp_path)


def test_files_may_come_from_several_threads(tmp_path):
    def put(run, k):
        run.put_json(f"part-{k}.json", {"k": k})
        run.commit()

    with folders.writing(tmp_path) as run:
        threads = [threading.Thread(target=put, args=(run, k)) for k in range(12)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    now = Run.open(tmp_path)
    assert sorted(now.json(name)["k"] for name in now.files) == list(range(12))
    assert names(tmp_path) == files(tmp_path)


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt])
def test_what_was_not_committed_is_gone(error, tmp_path):
    def interrupted(folder):
        with folders.writing(folder) as run:
            run.put_json("about.json", {"number": 3})
            raise error

    write(tmp_path / "old", 1)
    for folder in (tmp_path / "old", tmp_path / "new" / "run"):
        with pytest.raises(error):
            interrupted(folder)
    assert read(tmp_path / "old") == 1
    assert names(tmp_path) == {"old"}
    assert names(tmp_path / "old") == files(tmp_path / "old")


def test_what_a_killed_writer_left_is_no_run_and_goes(tmp_path):
    left = {"about.0123456789abcdef.json", "part-0.0123456789abcdef.safetensors", ".manifest.json.0123456789abcdef"}
    for name in (*left, ".lock"):
        (tmp_path / name).write_text("{")
    assert folders.is_free(tmp_path)
    assert not folders.is_run(tmp_path)
    write(tmp_path, 1)
    assert names(tmp_path) == files(tmp_path)
    for name in (*left, ".lock"):
        (tmp_path / name).write_text("{")
    assert read(tmp_path) == 1
    assert set(folders.check(tmp_path).others) == left
    write(tmp_path, 2)
    assert names(tmp_path) == files(tmp_path)


def test_a_second_writer_is_kept_out_in_words(tmp_path):
    write(tmp_path, 1)
    with folders.writing(tmp_path):
        with pytest.raises(BusyError, match=rf"{tmp_path} is being written by process {os.getpid()} .* since 20"):
            write(tmp_path, 2)
        assert read(tmp_path) == 1
    write(tmp_path, 2)
    assert read(tmp_path) == 2


def test_a_lock_ends_with_its_holder(tmp_path):
    """A killed process holds nothing, and a child that it left behind does not hold it either."""
    import subprocess
    import sys

    program = f"""
import os, sys, time
from wherefrom.files import folders
with folders.writing({str(tmp_path)!r}) as run:
    run.put_json("about.json", {{"number": 1}})
    if os.fork():
        print("holds", flush=True)
        os.read(0, 1)
        os.kill(os.getpid(), 9)
    os.close(1)
    time.sleep(60)
"""
    process = subprocess.Popen(
        [sys.executable, "-c", program],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)},
        start_new_session=True,
    )
    try:
        assert process.stdout.readline() == b"holds\n"
        with pytest.raises(BusyError, match=f"by process {process.pid} of"):
            write(tmp_path, 2)
        process.stdin.write(b"x")
        process.stdin.close()
        process.wait()
        write(tmp_path, 2)
        assert names(tmp_path) == files(tmp_path)
    finally:
        os.killpg(process.pid, 9)  # the child that was left behind
        process.stdout.close()


def test_a_reader_begins_again_when_the_version_changes(tmp_path):
    write(tmp_path, 1)
    versions = []

    def load_slowly(run):
        versions.append(run)
        if len(versions) < 3:
            write(tmp_path, len(versions) + 1)  # between the manifest and the files that it names
        return load(run)

    assert folders.reading(tmp_path, load_slowly) == 3
    assert len(versions) == 3


def test_readers_never_see_a_mixture(tmp_path):
    write(tmp_path, 0)
    numbers, done = [], threading.Event()

    def keep_reading():
        while not done.is_set():
            numbers.append(read(tmp_path))

    reader = threading.Thread(target=keep_reading)
    reader.start()
    for number in range(1, 30):
        write(tmp_path, number, count=4)
    done.set()
    reader.join()
    assert numbers == sorted(numbers)
    assert read(tmp_path) == 29


def test_a_damaged_manifest_deletes_nothing_until_there_is_another(tmp_path):
    write(tmp_path, 1)
    before = names(tmp_path)
    (tmp_path / MANIFEST).write_text("{")
    with pytest.raises(FileError, match=r"manifest\.json is damaged"), folders.writing(tmp_path):
        pass
    with pytest.raises(KeyboardInterrupt), folders.writing(tmp_path, is_new=True):
        raise KeyboardInterrupt
    assert names(tmp_path) == before
    write(tmp_path, 2)
    assert names(tmp_path) == files(tmp_path)


def test_every_bit_of_a_run_counts(tmp_path):
    write(tmp_path, 1, count=1)
    for path in sorted(tmp_path.iterdir()):
        whole = path.read_bytes()
        for bit in range(0, 8 * len(whole), 23):
            changed = bytearray(whole)
            changed[bit // 8] ^= 1 << bit % 8
            path.write_bytes(changed)
            with pytest.raises(FileError, match=path.name):
                read(tmp_path)
        path.write_bytes(whole)
    assert read(tmp_path) == 1


def test_what_is_whole_is_told(tmp_path):
    write(tmp_path, 1, count=3)
    (tmp_path / "notes.txt").write_text("mine")
    run = Run.open(tmp_path)
    run.path("part-0.safetensors").unlink()
    run.path("part-1.safetensors").write_bytes(b"x")
    checked = folders.check(tmp_path)
    assert (checked.whole, checked.others) == (("about.json", "part-2.safetensors"), ("notes.txt",))
    assert "there is no file" in checked.damaged["part-0.safetensors"]
    assert "has 1 bytes instead of" in checked.damaged["part-1.safetensors"]
    assert not checked.is_whole


@pytest.mark.parametrize("name", ["../about.json", "a/b.json", "About.json", "a.txt", ".json", "about", "ab\n.json"])
def test_names_stay_inside(name, tmp_path):
    with folders.writing(tmp_path) as run, pytest.raises(ValueError, match="cannot be a file of a run"):
        run.put_json(name, {})


def test_links_and_special_files_are_not_read(tmp_path):
    write(tmp_path / "run", 1)
    path = Run.open(tmp_path / "run").path("about.json")
    path.rename(tmp_path / "elsewhere")
    path.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(FileError, match=f"{path.name} is a symbolic link"):
        read(tmp_path / "run")
    path.unlink()
    os.mkfifo(path)
    with pytest.raises(FileError, match=f"{path.name} is a folder, a pipe or a device"):
        read(tmp_path / "run")
    path.unlink()
    path.mkdir()
    with pytest.raises(FileError, match=f"{path.name} is a folder, a pipe or a device"):
        read(tmp_path / "run")
    manifest = tmp_path / "run" / MANIFEST
    manifest.unlink()
    os.mkfifo(manifest)
    with pytest.raises(FileError, match="is a folder, a pipe or a device"):
        read(tmp_path / "run")


def test_missing_runs_are_missing_files(tmp_path):
    for folder, words in ((tmp_path / "nowhere", "does not exist"), (tmp_path, "holds no run")):
        with pytest.raises(MissingFileError, match=words) as error:
            read(folder)
        assert isinstance(error.value, FileNotFoundError | ValueError)
