"""The trials: each tries something so many times, and says how often files held."""

from __future__ import annotations

import collections
import contextlib
import errno
import os
import random
import resource
import signal
import subprocess
import time
import traceback
import warnings
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

import wherefrom as wf
from reliable import mutating
from reliable.cases import Case, fresh, problem, table, training
from reliable.killing import How, in_child, interrupted, operations
from wherefrom.files import folders
from wherefrom.files.errors import BusyError

_SECONDS = 10  # after which reading a file counts as a hang


@dataclass
class Trial:
    """Count of trials, of those that held, and what happened in the others."""

    name: str
    tried: int = 0
    held: int = 0
    notes: collections.Counter[str] = field(default_factory=collections.Counter)
    faults: list[str] = field(default_factory=list)

    def add(self, fault: str | None, note: str = "") -> None:
        """Count one attempt; `fault` says what was wrong."""
        self.tried += 1
        self.held += fault is None
        if note:
            self.notes[note] += 1
        if fault is not None:
            self.faults.append(fault)

    def __str__(self) -> str:
        notes = "; ".join(f"{count:,} {note}" for note, count in self.notes.most_common())
        return f"| {self.name} | {self.tried:,} | {self.held:,} | {notes} |"


# ---------------------------------------------------------------------- kills, and disks that are full


def interruptions(case: Case, folder: Path, how: How, has_old: bool, every: int = 1) -> Trial:
    """Interrupt a writer at each of its file operations; the old or the new version must be there, then be replaced."""
    words = {
        "die": "killed before every operation",
        "die half-way": "killed within every write",
        "fail": "disk full from every operation on",
    }[how]
    trial = Trial(f"{case.name}, {words}{'' if has_old else ', nothing there before'}")
    base = None
    if has_old:
        base = _old_version(case, folder)
    target = fresh(case, folder / "tried", base)
    count = operations(lambda: case.write(target, 1), folder / "tried", how)
    for number in range(1, count + 1, every):
        fresh(case, folder / "tried", base)
        code = interrupted(lambda: case.write(target, 1), folder / "tried", number, how)
        trial.add(*_state(case, target, has_old, how, code))
    return trial


def _old_version(case: Case, folder: Path) -> Path:
    """Write the old version into a folder of its own, and return that; in a child, since polars survives no fork."""
    base = folder / "base"
    target = fresh(case, base, None)
    if in_child(lambda: case.write(target, 0)):
        raise RuntimeError(f"{case.name} cannot be written at all")
    return base


def _state(case: Case, target: Path, has_old: bool, how: How, code: int) -> tuple[str | None, str]:
    """Return what is wrong after an interruption, and which version was there."""
    try:
        version = "new" if case.read(target) else "old"
    except (FileNotFoundError, ValueError) as error:
        if has_old or not _is_nothing(target):
            return f"code {code}: {error}", "not readable"
        version = "nothing"
    if version == "old" and not has_old:
        return "an old version that never was", version
    if how == "fail" and code == 0 and version != "new":
        return "the writer said that all is well, and it is not", version
    if how == "fail" and (left := [name for name in case.leftovers(target) if name != "key"]):
        return f"code {code}: {left} were left by a writer that was not killed", version
    if in_child(lambda: case.write(target, 1)):
        return "the next writer failed", version
    if not case.read(target):
        return "the next writer wrote nothing", version
    if left := case.leftovers(target):
        return f"the next writer left {left}", version
    return None, version


def _is_nothing(target: Path) -> bool:
    if target.is_dir():
        return folders.is_free(target) or not any(target.glob("[!.]*"))
    return not target.exists()


def tiny_disk(cases: list[Case], folder: Path) -> Trial:
    """Write onto a file system of 64 kB and less, which fills up."""
    trial = Trial("a file system of 8 to 64 kB (tmpfs)")
    for size in (8, 16, 24, 32, 48, 64):
        mount = folder / "tiny"
        mount.mkdir(parents=True, exist_ok=True)
        made = subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size}k", "tmpfs", mount], capture_output=True)
        if made.returncode:
            trial.notes["tmpfs cannot be mounted here"] += 1
            return trial
        try:
            for case in cases:
                target = fresh(case, mount / "tried", None)
                code = in_child(lambda case=case, target=target: case.write(target, 1), is_quiet=True)
                try:
                    version = "new" if case.read(target) else "old"
                except (FileNotFoundError, ValueError):
                    version = "nothing" if _is_nothing(target) else "broken"
                is_right = version in (("new",) if code == 0 else ("nothing", "old"))
                trial.add(None if is_right else f"{case.name}, {size} kB: {version}, code {code}", version)
        finally:
            subprocess.run(["umount", mount], check=True)
    return trial


# ---------------------------------------------------------------------- damage


def flipped_bits(folder: Path, count: int) -> Trial:
    """Flip one bit in any file of a run; loading must say so."""
    trial = Trial("single bits flipped in a run of a table")
    run, chance = _run_of_table(folder), random.Random(0)
    files = sorted(path for path in run.iterdir())
    sizes = [path.stat().st_size for path in files]
    for _ in range(count):
        (path,) = chance.choices(files, sizes)
        content = path.read_bytes()
        changed = bytearray(content)
        at = chance.randrange(len(changed))
        changed[at] ^= 1 << chance.randrange(8)
        path.write_bytes(changed)
        try:
            wf.load(run)
            trial.add(f"{path.name}, byte {at}: loaded without a word")
        except wf.FileError as error:
            trial.add(None if path.name in str(error) else f"{path.name} is not named: {error}")
        finally:
            path.write_bytes(content)
    wf.load(run)
    return trial


def flipped_bits_of_members(folder: Path, count: int) -> Trial:
    """Flip one bit in a member's file; the others must load, and predict as they did."""
    trial = Trial("a damaged member, the others loaded (partial=True)")
    run, chance = _posterior(folder), random.Random(1)
    x = problem()[0][:5]
    whole = wf.load(run)
    names = [name for name in folders.Run.open(run).files if name.startswith("member-")]
    for _ in range(count):
        name = chance.choice(names)
        path = folders.Run.open(run).path(name)
        content = path.read_bytes()
        changed = bytearray(content)
        changed[chance.randrange(len(changed))] ^= 1 << chance.randrange(8)
        path.write_bytes(changed)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            part = wf.load(run, partial=True)
        others = [k for k in range(len(whole)) if f"member-{k}.safetensors" != name]
        is_same = bool((part.predict(x).answers == whole.predict(x).answers[others]).all())
        trial.add(None if len(part) == len(others) and is_same else f"{name}: other members")
        path.write_bytes(content)
    return trial


MutatedKind = tuple[Any, Any, dict[str, bytes]]


class _Hang(BaseException):
    pass


def mutations(trial: Trial, folder: Path, kind: MutatedKind, numbers: range) -> None:
    """Load files that were changed; only a FileError that names the file is allowed, or a run that predicts."""
    read, predict, files = kind

    def hang(*_: Any) -> None:
        raise _Hang

    before = signal.signal(signal.SIGALRM, hang)
    tried = folder / "tried"
    try:
        for number in numbers:
            mutation = mutating.Mutation.of(files, random.Random(number))
            mutating.apply(mutation, files, tried)
            memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
            signal.alarm(_SECONDS)
            try:
                fault, note = loaded(read, predict, tried, mutation)
            except _Hang:
                fault, note = "it hangs", "hangs"
            finally:
                signal.alarm(0)
            if resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - memory > 2**20:
                fault = "it takes more than 1 GB"
            trial.add(None if fault is None else f"number {number}, {mutation.words}: {fault}", note)
    finally:
        signal.signal(signal.SIGALRM, before)


def loaded(read: Any, predict: Any, tried: Path, mutation: mutating.Mutation) -> tuple[str | None, str]:
    """Load files that were changed, and return what is wrong with how that ended, and what happened."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            run = read(tried)
        except wf.FileError as error:
            return None if str(tried) in str(error) else f"no file is named: {error}", "refused"
        except Exception as error:
            return f"{type(error).__name__} {traceback.extract_tb(error.__traceback__)[-1]}", "raw errors"
        if not mutation.is_signed_anew and not mutation.special:
            return "loaded, though its digest is wrong", "silent"
        try:
            predict(run)
        except Exception as error:
            where = traceback.extract_tb(error.__traceback__)[-1]
            return f"{type(error).__name__} {where} in predicting", "with forged digests loaded, and failed to predict"
        return None, "with forged digests loaded, and predict"


def mutated_kind(folder: Path, kind: str) -> MutatedKind:
    """Return how to read a folder, how to predict by what was read, and the files that are whole."""
    folder.mkdir(parents=True, exist_ok=True)
    if kind == "posterior":
        run, x = _posterior(folder), problem()[0][:3]
        return wf.load, lambda posterior: posterior.predict(x, samples=2), mutating.contents(run)
    if kind == "table":
        run = _run_of_table(folder)
        return wf.load, _predict_by_table, mutating.contents(run)
    if kind == "recorder":
        recorder = wf.Recorder(wf.SWAG(2))
        for _ in range(3):
            recorder.update(wf.MLP([3]).sized(4, 1)())
        recorder.save(folder / "member.safetensors")
        content = (folder / "member.safetensors").read_bytes()
        return (
            lambda tried: wf.Recorder.load(tried / "member.safetensors"),
            lambda recorder: recorder.law(),
            {"member.safetensors": content},
        )
    raise ValueError(f"there is no kind {kind!r}")


def _predict_by_table(run: Any) -> None:
    """Predict two rows; a run whose manifest no longer names its table is that of a posterior."""
    if isinstance(run, wf.Posterior):
        run.predict(np.zeros((2, *run.schema.x_shape)), samples=2)
    else:
        run.predict({"a": [0.0, None], "b": ["u", "v"]})


def _posterior(folder: Path) -> Path:
    x, y = problem()
    over = [
        wf.Families({"small": wf.MLP([3]), "large": wf.MLP([4])}),
        wf.Hyperparameters(lr=[0.01, 0.02]),
        wf.Iterations(wf.SWAG(2)),
    ]
    wf.marginalise(training(4), (x, y), over).calibrated("conformal", (x + 1, y)).save(folder / "whole")
    return folder / "whole"


def _run_of_table(folder: Path) -> Path:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        wf.fit(table(), "y", draws=2, epochs=2, noise="fit").save(folder / "whole")
    return folder / "whole"


# ---------------------------------------------------------------------- where writing cannot be


def read_only(cases: list[Case], folder: Path) -> Trial:
    """Write into folders that cannot be written to; the old version must stay."""
    trial = Trial("a read-only folder")
    for case in cases:
        base = _old_version(case, folder)
        target = fresh(case, folder / "tried", base)
        with _unwritable(folder / "tried") as is_unwritable:
            if not is_unwritable:
                trial.notes["no folder can be made read-only here"] += 1
                return trial
            code = in_child(lambda case=case, target=target: case.write(target, 1), is_quiet=True)
            is_right = code in (2, 3) and case.read(target) == 0
        trial.add(None if is_right else f"{case.name}: code {code}")
    return trial


@contextlib.contextmanager
def _unwritable(folder: Path) -> Iterator[bool]:
    """Make a folder read-only: by a mount, since the administrator may write anywhere; else by its mode."""
    bound = subprocess.run(["mount", "--bind", folder, folder], capture_output=True).returncode == 0
    if bound:
        subprocess.run(["mount", "-o", "remount,ro,bind", folder], check=True, capture_output=True)
    else:
        for path in (folder, *folder.rglob("*/")):
            path.chmod(0o555)
    try:
        yield bound or not os.access(folder, os.W_OK)
    finally:
        if bound:
            subprocess.run(["umount", folder], check=True)
        else:
            for path in (folder, *folder.rglob("*/")):
                path.chmod(0o755)


def no_descriptors(cases: list[Case], folder: Path) -> Trial:
    """Write with few file descriptors left: it works, or fails with the old version in place."""
    trial = Trial("no file descriptors left")
    for case in cases:
        base = _old_version(case, folder)
        for spare in range(4):
            target = fresh(case, folder / "tried", base)

            def starved(case: Case = case, target: Path = target, spare: int = spare) -> None:
                taken: list[int] = []
                resource.setrlimit(resource.RLIMIT_NOFILE, (128, 128))
                with contextlib.suppress(OSError):
                    while True:
                        taken.append(os.open(os.devnull, os.O_RDONLY))
                for descriptor in taken[:spare]:
                    os.close(descriptor)
                try:
                    case.write(target, 1)
                except (OSError, ImportError) as error:  # what it would import cannot be opened either
                    if isinstance(error, OSError) and error.errno not in (errno.EMFILE, errno.ENFILE):
                        raise
                    os._exit(4)

            code = in_child(starved, is_quiet=True)
            version = case.read(target)
            note = "written" if version else "refused, the old version in place"
            trial.add(None if version == (code == 0) else f"{case.name}, {spare} spare: {version}, code {code}", note)
    return trial


def two_writers(cases: list[Case], folder: Path, times: int) -> Trial:
    """Let two processes write one target at the same time: each ends well and its version is whole, or is refused."""
    trial = Trial("two writers at once")
    for case in cases:
        for _ in range(times):
            base = _old_version(case, folder)
            target = fresh(case, folder / "tried", base)
            processes = [_forked(case, target) for _ in range(2)]
            codes = [os.waitstatus_to_exitcode(os.waitpid(process, 0)[1]) for process in processes]
            is_right = 0 in codes and set(codes) <= {0, 5} and case.read(target) == 1 and not case.leftovers(target)
            trial.add(None if is_right else f"{case.name}: codes {codes}", "refused one" if 5 in codes else "in turn")
    return trial


def _forked(case: Case, target: Path) -> int:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # of fork in a process with threads: none computes
        process = os.fork()
    if process:
        return process
    code = 1
    try:
        case.write(target, 1)
        code = 0
    except BusyError:
        code = 5
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(code)


def clock_back(case: Case, folder: Path) -> Trial:
    """Kill a writer, set the clock back or forward by years, and write again: nothing depends on the time."""
    trial = Trial("clock set back or forward, after a kill")
    base = _old_version(case, folder)
    count = operations(lambda: case.write(fresh(case, folder / "tried", base), 1), folder / "tried")
    for number in range(1, count + 1, 3):
        for years in (-50, -1, 30):
            target = fresh(case, folder / "tried", base)
            interrupted(lambda target=target: case.write(target, 1), folder / "tried", number, "die")
            moment = time.time() + years * 365.25 * 86400
            for path in (folder / "tried").rglob("*"):
                os.utime(path, (max(moment, 0),) * 2, follow_symlinks=False)
            trial.add(*_state(case, target, True, "die", 77))
    return trial
