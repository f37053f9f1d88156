"""The model of a table: all it takes to predict more rows of it, in memory and as one folder on disk.

    posterior.json, member-0.safetensors, ...   the posterior, as `wf.load` reads it
    table.json                                  what each column becomes, the target, scores, and how it came about
    table.safetensors                           where the training rows lie and, unless they are to be left out, the
                                                held-out rows as numbers, which the report is about; table.json has
                                                their names then

The folder is a run folder (`files/folders.py`): it has a manifest, and one rename switches to a new version.
Other files in the folder are left alone, but for a report on the version before.
"""

from __future__ import annotations

import datetime
import math
import os
import platform
import sys
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, get_type_hints

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from wherefrom import __version__, plots
from wherefrom.files import atomic, codec, folders
from wherefrom.files.codec import stored
from wherefrom.files.errors import FileError, MissingFileError
from wherefrom.files.folders import Run, Writer
from wherefrom.files.reading import blaming, check_format
from wherefrom.likelihoods.quantities import checked_level
from wherefrom.posterior import Posterior, store
from wherefrom.posterior.predicting import Method
from wherefrom.predictive.background import Background
from wherefrom.predictive.components import UNEXPLAINED
from wherefrom.predictive.sources import Overall
from wherefrom.report.words import COLUMNS, meaning
from wherefrom.showing import Library, card, paragraphs
from wherefrom.table import Table
from wherefrom.tables import frames
from wherefrom.tables.advising import Advice, advice
from wherefrom.tables.cells import Cells
from wherefrom.tables.columns import Encoded, Exposure, TableEncoder
from wherefrom.tables.completing import Completion
from wherefrom.tables.gaps import Donors
from wherefrom.tables.importance import REPEATS, Importance, importance
from wherefrom.tables.labelled import Labelled
from wherefrom.tables.looking import Gap, How, Looked, look
from wherefrom.tables.neighbours import Neighbour
from wherefrom.tables.outside import Surroundings
from wherefrom.tables.raw import Format, Integers, Numbers, RawTable
from wherefrom.tables.reading import CHUNK, chunks, read
from wherefrom.tables.scores import Scores
from wherefrom.tables.streaming import looked_at, predict_to_file
from wherefrom.tables.target import Target
from wherefrom.tables.unexplained import Unexplained, unexplained
from wherefrom.tables.wording import language, option
from wherefrom.tables.writing import DIGITS, finite
from wherefrom.training.data import Rows, as_rows
from wherefrom.training.progress import Show

FORMAT = 4
JSON, TENSORS = "table.json", "table.safetensors"
_STORED = (
    "encoder",
    "target",
    "around",
    "background",
    "scores",
    "level",
    "samples",
    "about",
    "held_out",
    "donors",
    "tested",
    "neighbours",
)
REPORT = "report.html"
_SMALL = 0.01  # a share


@stored("HeldOut")
@dataclass(frozen=True, eq=False)
class HeldOut:
    """Rows that judge the networks: each left out by one fold, or held out of all, to calibrate first, then to test.

    Classes go by their numbers. Missing values are drawn once in `x`; `cells` say where, so that they can be drawn
    again, and `itself` which donor each row is, that may give it none (-1 for none).
    """

    x: Numbers
    y: Numbers
    rows: Integers  # their numbers in the file
    names: tuple[str, ...]
    distance: Numbers  # from the training rows
    calibrate: int = 0  # how many of them are to calibrate
    left_out_by: Integers | None = None  # the fold of each
    cells: Cells | None = None  # None if no value is missing
    itself: Integers | None = None

    @classmethod
    def of(
        cls,
        x: Encoded,
        y: NDArray[Any],
        table: RawTable,
        names: Sequence[str],
        chosen: Integers,
        target: Target,
        distance: Numbers,
        calibrate: int = 0,
        left_out_by: Integers | None = None,
        cells: Cells | None = None,
        itself: Integers | None = None,
    ) -> HeldOut:
        """Keep the chosen rows, by their indices, of rows that are completed once, and of what is known of each."""
        truth = y[chosen]
        if target.classes:
            truth = np.array([target.classes.index(label) for label in truth.tolist()])
        called = tuple(names[row] for row in chosen.tolist())
        folds = None if left_out_by is None else left_out_by[chosen]
        known = None if cells is None else cells.take(chosen)
        if known is None or not known.gaps.any():
            known, itself = None, None
        return cls(
            x.values[chosen],
            truth.astype(np.float64),
            table.rows[chosen],
            called,
            distance[chosen],
            calibrate,
            folds,
            known,
            None if itself is None else itself[chosen],
        )


@dataclass(frozen=True, eq=False)
class Model:
    """A model of one column of a table: made by `wf.fit`, and loaded by `wf.load`.

    Tables are pandas or polars frames, dictionaries of columns, or files (CSV, Parquet). Results have the same type as
    the table; for a file, they are a dictionary.

    posterior: the networks, as `wf.marginalise` returns them.
    scores: scores of rows by networks that were not trained on them; `print(model.scores)` shows them.
    notes: what the user should know about the table.
    """

    posterior: Posterior
    encoder: TableEncoder
    target: Target
    around: Surroundings
    background: Background  # which answers where rows are outside
    scores: Scores  # of rows left out by a fold each, or held out to test
    level: float
    samples: int
    about: dict[str, Any]
    held_out: HeldOut | None
    donors: Donors | None = None  # training rows that give missing values; None if there are none to give
    tested: Scores = field(default_factory=Scores)  # of rows that were given to test on, if any were
    neighbours: tuple[Neighbour, ...] = ()  # other models, by the same folds

    def save(self, folder: str | Path, *, overwrite: bool = False, keeps_data: bool = True, command: str = "") -> None:
        """Write the model into a folder: completely, or not at all.

        folder: its path; it may exist if it is empty.
        overwrite: replace a model that is there (default False: an error).
        keeps_data: store the held-out rows for the report, and training rows to draw missing values from (default
            True). Otherwise missing values are drawn from made-up rows, each made from ten similar training rows.
        command: text to store with the model, such as the command that made it (default: none).
        """
        folder = Path(folder)
        check_free(folder, overwrite)
        with folders.writing(folder.resolve(), is_new=True) as run:
            check_free(folder, overwrite)
            self.put(run, keeps_data=keeps_data, command=command)

    def put(self, run: Writer, *, keeps_data: bool = True, command: str = "") -> None:
        """Write the model as the next version of a run, and switch to it; see `save`."""
        noise = self.posterior.fold.held_out if keeps_data else None
        values = {name: getattr(self, name) for name in _STORED}
        values["held_out"] = self.held_out if keeps_data else None
        values["donors"] = self.donors if keeps_data or self.donors is None else self.donors.made_up()
        values["noise"] = None if noise is None or noise.left_out_by is not None else (noise.x, noise.numbers)
        tensors: dict[str, Tensor] = {}
        document = self._history(command) | {"run": codec.pack(values, tensors)}
        store.put(run, self.posterior)
        run.put_tensors(TENSORS, tensors)
        run.put_json(JSON, document)
        run.commit()
        with suppress(OSError):
            atomic.remove(run.folder / REPORT)  # of the version before

    def _history(self, command: str) -> dict[str, Any]:
        """Return how the run came about, and how good it is, for people who open the file."""
        return {
            "format": FORMAT,
            "made": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
            "command": command,
            "versions": {
                "wherefrom": __version__,
                "python": platform.python_version(),
                "torch": str(torch.__version__),
                "numpy": np.__version__,
            },
            "seed": self.posterior.seed,
            **finite(self.scores.shown()),
            "calibration": [str(each) for each in self.posterior.calibration],
        }

    @classmethod
    def load(cls, folder: str | Path, *, partial: bool = False, key: str | Path | None = None) -> Model:
        """Read a model that `save` or `wherefrom fit` wrote.

        folder: its path.
        partial: leave damaged members out, with a warning (default False: they are an error).
        key: file with the key; the run must have been signed with it (default None: not checked).
        """
        folder = Path(folder)
        try:
            return folders.reading(folder, lambda run: cls._read(run, partial), key)
        except MissingFileError as error:
            if folders.is_run(folder):
                raise
            what = "holds no run of a table" if folder.is_dir() else "does not exist"
            raise MissingFileError(f"{folder} {what}: make one, as {_how_to_fit(folder)}") from error

    @classmethod
    def _read(cls, run: Run, is_partial: bool) -> Model:
        if JSON not in run:
            raise FileError(f"{run.folder} holds no run of a table: make one, as {_how_to_fit(run.folder)}")
        document, path = run.json(JSON), run.path(JSON)
        check_format(document.get("format"), FORMAT, run.folder)
        (_, tensors), posterior = run.tensors(TENSORS), store.read(run, is_partial=is_partial)
        with blaming(path):
            values = codec.unpack(document["run"], tensors.__getitem__)
            codec.check(values, {name: hint for name, hint in get_type_hints(cls).items() if name in _STORED})
            noise, features = values.pop("noise"), values["encoder"].features
            posterior.schema.inputs(Encoded(np.zeros((1, len(features))), features))  # raises if networks take others
            values["around"].check(values["encoder"])
            if values["donors"] is not None:
                values["donors"].check()
            checked_level(values["level"])
            if values["samples"] < 1:
                raise ValueError(f"networks cannot have {values['samples']} samples")
            if noise is not None:
                x, y = (part.numpy() for part in noise)
                y = y[:, 0] if y.shape[1] == 1 else y
                rows = as_rows((Encoded(x, features), y), posterior.training.likelihood)
                posterior = replace(posterior, fold=replace(posterior.fold, held_out=rows))
            model = cls(posterior, **values).with_rows_to_judge()
            model._rehearse()
            return model

    def _rehearse(self) -> None:
        """Raise if rows cannot be read, encoded, compared with the training rows and completed.

        By two rows, one of which has the medians of its quantities, and the other nothing but an exposure.
        """
        medians = {rule.name: getattr(rule, "median", None) for rule in self.encoder.rules}
        kinds = {rule.name: getattr(rule, "kind", "") for rule in self.encoder.rules}
        needed = {rule.name for rule in self.encoder.rules if isinstance(rule, Exposure)}
        rows = {
            name: [medians[name] if kinds[name] == "number" else None, medians[name] if name in needed else None]
            for name in self.encoder.names
        }
        encoded = self.encoder.encode(self.as_table(rows))
        self.around.look(encoded)
        self.posterior.schema.inputs(encoded if self.completion is None else self.completion.drawn(encoded)[0])

    # ------------------------------------------------------------------ prediction

    def predict(
        self,
        table: Any,
        *,
        level: float | None = None,
        samples: int | None = None,
        method: Method = "monte_carlo",
        keep: Sequence[str] = (),
        out: str | Path | None = None,
        digits: int = DIGITS,
        progress: Show = False,
    ) -> Any:
        """Predict every row of a table, with the columns that `wherefrom predict` writes.

        table: a frame, a dictionary of columns, or a file.
        level: level of the intervals (default: that of the model).
        samples: samples of each network (default: as many as the model was fitted with).
        method: "monte_carlo" (default), "one_shot" or "auto".
        keep: columns of the table to show beside the predictions.
        out: a CSV or Parquet file to write the predictions to (default: they are returned). Files are then read,
            predicted and written some rows at a time, so memory does not grow. The result is the number of rows and, if
            the target is in the table, the scores.
        digits: significant digits in a CSV file (default 4).
        progress: show a progress bar (default False).
        """
        how = How(level, samples, method, keep)
        if out is not None:
            predicted = predict_to_file(self, self.chunks_of(table), Path(out), how, digits, progress)
            _warn(predicted.notes)
            return predicted
        looked = self.look(table, how, progress)
        _warn(looked.notes)
        return frames.like(table, looked.columns())

    def predict_chunks(
        self,
        table: Any,
        *,
        rows: int = CHUNK,
        level: float | None = None,
        samples: int | None = None,
        method: Method = "monte_carlo",
        keep: Sequence[str] = (),
    ) -> Iterator[dict[str, Any]]:
        """Predict a table some rows at a time: yield the columns of `predict` for each chunk of rows.

        Rows of a file are read as they are predicted, so memory does not grow. Predictions are those of `predict`. Only
        chunks with missing values have the column `share_gaps`.

        table: as for `predict`.
        rows: of a chunk (default 20,000).
        level, samples, method, keep: as for `predict`.

        >>> import numpy as np
        >>> import wherefrom as wf
        >>> random = np.random.default_rng(0)
        >>> a, luck = random.normal(size=(2, 100))
        >>> model = wf.fit({"a": a, "y": a + luck}, "y", draws=2, epochs=10, noise="fit")
        >>> [len(columns["mean"]) for columns in model.predict_chunks({"a": a}, rows=40)]
        [40, 40, 20]
        """
        if rows < 1:
            raise ValueError(f"a chunk has at least one row, not {rows}")
        for looked in looked_at(self, self.chunks_of(table, None, rows), How(level, samples, method, keep)):
            _warn(looked.notes)
            yield looked.columns()

    def chunks_of(self, table: Any, how: Format | None = None, rows: int = CHUNK) -> Iterator[RawTable]:
        """Yield a table in chunks of rows, read as the model's own was."""
        if isinstance(table, str | Path):
            yield from chunks(table, self.reading(how), rows)
            return
        whole = self.as_table(table, how)
        for start in range(0, len(whole), rows):
            yield whole.take(slice(start, start + rows))

    def score(self, table: Any, *, samples: int | None = None, level: float | None = None) -> Scores:
        """Score the predictions of rows whose target is known, each score with its standard error.

        table: a frame, a dictionary of columns, or a file, with the target.
        samples: samples of each network (default: the model's own).
        level: level of the intervals (default: the model's own).
        """
        looked = self.look(table, How(level, samples))
        _warn(looked.notes)
        if not looked.predicted.scores:
            raise ValueError(f"{looked.table.source} has no row with a {self.target.name!r} to compare with")
        return looked.predicted.scores

    def sources(self, table: Any, *, samples: int | None = None) -> TableSources:
        """Split the doubt by its sources, over all rows of a table and for each of them.

        table: a frame, a dictionary of columns, or a file.
        samples: samples of each network (default: the model's own).
        """
        looked = self.look(table, How(samples=samples))
        _warn(looked.notes)
        shares = {name: values for name, values in looked.columns().items() if name.startswith("share_")}
        has_families = self.posterior.design.families is not None
        return TableSources(looked.overall(), frames.like(table, shares), looked.gaps(), has_families)

    def importance(self, table: Any = None, *, repeats: int = REPEATS) -> Importance:
        """Return how much worse predictions get if one column is shuffled among the rows (permutation importance).

        Each row is predicted by networks that were trained without it. If two columns have the same information, both
        seem to matter little.

        table: rows whose target is known and that were not trained on (default: those that the model kept).
        repeats: permutations of each column (default 3).

        >>> import numpy as np
        >>> import wherefrom as wf
        >>> random = np.random.default_rng(0)
        >>> a, b = random.normal(size=(2, 200))
        >>> model = wf.fit({"a": a, "b": b, "y": 3 * a + random.normal(size=200)}, "y", draws=2, epochs=60, noise="fit")
        >>> list(model.importance().columns)
        ['a', 'b']
        """
        return importance(self.labelled(table), repeats)

    def unexplained(self, table: Any = None) -> Unexplained:
        """Return where errors are large and where they are small, by column: what the columns do not explain.

        Each row is predicted by networks that were trained without it.

        table: rows whose target is known and that were not trained on (default: those that the model kept).

        >>> import numpy as np
        >>> import wherefrom as wf
        >>> random = np.random.default_rng(0)
        >>> a, b = random.normal(size=(2, 300))
        >>> y = a + np.where(b > 0, 3, 1) * random.normal(size=300)
        >>> model = wf.fit({"a": a, "b": b, "y": y}, "y", draws=2, epochs=40, noise="fit")
        >>> list(model.unexplained().columns)
        ['b', 'a']
        """
        return unexplained(self.labelled(table))

    def advice(self, table: Any = None) -> Advice:
        """Return what to do about the model, the most serious first: at most three items, each with its figure.

        table: rows whose target is known and that were not trained on (default: those that the model kept).

        >>> import numpy as np
        >>> import wherefrom as wf
        >>> random = np.random.default_rng(0)
        >>> a, luck = random.normal(size=(2, 300))
        >>> model = wf.fit({"a": a, "y": a + luck}, "y", draws=2, epochs=40, noise="fit")
        >>> model.advice().about
        ('unexplained',)
        """
        return advice(self.labelled(table), self.scores if table is None else None)

    def report(self, path: str | Path, table: Any = None) -> Path:
        """Write a report about the model, a page for the browser, and return its path.

        path: the HTML file.
        table: rows with their target (default: those that the model kept).
        """
        from wherefrom.tables.reporting import report

        return report(self, Path(path), None if table is None else self.as_table(table)).path

    def look(self, table: Any, how: How | None = None, progress: Show = False) -> Looked:
        """Predict a table, and keep all that is known about it."""
        return look(self, self.as_table(table), how, progress)

    def as_table(self, table: Any, how: Format | None = None) -> RawTable:
        """Return a table read as the model's own was: with its words for missing, and its decimal sign."""
        return as_table(table, self.reading(how))

    def reading(self, how: Format | None = None) -> Format:
        """Return how files are read: with the words for missing of the model's own table, and its decimal sign."""
        how = how or Format()
        words = tuple(dict.fromkeys((*self.about.get("missing", ()), *how.missing)))
        return replace(how, missing=words, decimal=how.decimal or self.about.get("decimal"))

    def verdict(self) -> list[str]:
        """Return what the scores call for to be said: first, if another model is better."""
        return [*self.better_neighbours(), *self.scores.remarks()]

    def better_neighbours(self) -> list[str]:
        """Return a sentence for each other model that is clearly better on the same rows, the best first."""
        better = sorted((each for each in self.neighbours if each.is_better), key=lambda each: -each.gain)
        return [each.claim for each in better]

    @property
    def notes(self) -> tuple[str, ...]:
        """Notes for the user about the table that it was fitted to."""
        return tuple(self.about["notes"])

    def __getstate__(self) -> dict[str, Any]:
        """Pickle no rows, as a pickled posterior holds none."""
        return vars(self) | {"held_out": None}

    def __deepcopy__(self, memo: dict[int, Any]) -> Model:
        return self  # it never changes

    def __repr__(self) -> str:
        rows = self.about["rows"]["all"]
        models = f"{len(self.posterior)} networks"
        if self.posterior.design.families is not None:
            weights = {each["name"]: each["weight"] for each in self.about["families"] if each["weight"]}
            models = " + ".join(f"{weight:.0%} {name}" for name, weight in weights.items())
        return f"Model({self.target.name}: {self.target.task}, {models}, learnt from {rows:,} rows)"

    def _repr_html_(self) -> str:
        return card(
            repr(self),
            self.scores.table().html() if self.scores else "",
            paragraphs("\n".join(self.verdict())),
        )

    def to_frame(self, library: Library | None = None) -> Any:
        """Return its scores as a frame.

        library: "pandas" or "polars" (default: pandas if it is installed, else polars).
        """
        return self.scores.to_frame(library)

    def plot(self, kind: str | None = None, table: Any = None, *, ax: Any = None) -> Any:
        """Draw predictions of rows whose truth is known with matplotlib, and return the axes.

        kind: for a quantity "intervals", "calibration" or "sources"; for classes "sources", "reliability" or
            "risk_coverage"; for survival times "curves" or "sources" (default: the first).
        table: a frame or a file with the target (default: training rows, each by networks that did not see it).
        ax: matplotlib's axes to draw on (default: a new figure).
        """
        rows = self.labelled(table)
        return rows.answer(self.posterior).plot(kind, rows.truth, level=self.level, ax=ax)

    @property
    def completion(self) -> Completion | None:
        """The rule that draws missing values of rows."""
        return None if self.donors is None else Completion(self.encoder, self.donors)

    @property
    def drawn_columns(self) -> tuple[str, ...]:
        """Columns whose missing values are drawn."""
        return () if self.completion is None else self.completion.names

    # ------------------------------------------------------------------ held-out rows

    def labelled(self, table: Any = None) -> Labelled:
        """Return the rows of a table whose target is known, or those that were kept to judge the model."""
        return Labelled.kept(self) if table is None else Labelled.of_table(self, self.as_table(table))

    def with_rows_to_judge(self) -> Model:
        """The model with rows at hand that folds left out, where it kept any, to fit anew what was fitted by all."""
        if self.held_out is None or self.held_out.left_out_by is None:
            return self
        fold = replace(self.posterior.fold, held_out=self.kept_rows(slice(None)))
        return replace(self, posterior=replace(self.posterior, fold=fold))

    def kept_rows(self, part: slice) -> Rows:
        """Return rows that were kept, missing values drawn once."""
        kept = self.held_out
        assert kept is not None
        y: NDArray[Any] = kept.y[part]
        if self.target.classes:
            y = np.array([self.target.classes[int(number)] for number in y.tolist()])
        x = Encoded(kept.x[part], self.encoder.features)
        rows = as_rows((x, y), self.posterior.training.likelihood, self.posterior.schema.classes)
        by = None if kept.left_out_by is None else torch.from_numpy(kept.left_out_by[part])
        return replace(rows, left_out_by=by)

    def with_rows_to_calibrate(self) -> Posterior:
        """The posterior with rows at hand to fit the calibration of its parts."""
        if self.held_out is None or not self.held_out.calibrate:
            return self.posterior
        rows = self.kept_rows(slice(None, self.held_out.calibrate))
        return replace(self.posterior, fitted=self.posterior.fitted.with_rows(rows))


@dataclass(frozen=True, eq=False)
class TableSources:
    """Shares of the doubt: of every source over all rows, and for each row.

    It prints what the columns do not explain beside the model's own doubt, and that on its own scale.

    overall: name -> share and share_error; model_share and model_share_error among the model's own sources.
    rows: a column for each source, a row for each row of the table.
    gaps: column -> rows that lack it, the fall to expect there, and rows in which it is to be measured next.
    """

    overall: Mapping[str, Any]
    rows: Any
    gaps: Mapping[str, Gap] = field(default_factory=dict)
    has_families: bool = False  # F is the kind of model, and not what dropout keeps

    def to_frame(self) -> Any:
        """Return the shares of each row as a frame, of the library that the table's frame was of."""
        return self.rows

    def plot(self, *, ax: Any = None) -> Any:
        """Draw each source's share of all doubt, with its standard error, and return the axes.

        What the columns do not explain is the last bar, in grey: it is not a source of the model.

        ax: matplotlib's axes to draw on (default: a new figure).
        """
        in_order = sorted(self.overall, key=lambda name: name in UNEXPLAINED)  # the sort keeps the order of the others
        shares = {name: self.overall[name].share for name in in_order}
        errors = {name: self.overall[name].share_error for name in in_order}
        titles = {name: meaning(name, self.has_families, inputs=COLUMNS) for name in in_order}
        axes = plots.bars(shares, errors, "share of all doubt", ax, titles=titles)
        axes.bar_label(axes.containers[-1], [f"{share:.1%}" for share in shares.values()], padding=3, fontsize=8)
        axes.margins(x=0.15)
        return axes

    def _repr_html_(self) -> str:
        return card("Where the doubt comes from", *(table.html() for table in self._tables))

    @property
    def _tables(self) -> list[Table]:
        tables = sources_tables(self.overall, self.has_families)
        return [*tables, gaps_table(self.gaps)] if self.gaps else tables

    def __str__(self) -> str:
        return "\n\n".join(map(str, self._tables))

    __repr__ = __str__


def sources_tables(overall: Mapping[str, Overall], has_families: bool = False) -> list[Table]:
    """Return two tables for people: what the columns do not explain beside the model's own doubt; and that, split.

    Where there is only one of the two, the second table is all.
    """
    unexplained = {name: part for name, part in overall.items() if name in UNEXPLAINED}
    of_model = {name: part for name, part in overall.items() if name not in UNEXPLAINED}
    tables = []
    if unexplained:
        rest, error = math.fsum(part.share for part in of_model.values()), next(iter(unexplained.values())).share_error
        lines = [
            *(
                (meaning(name, inputs=COLUMNS), *_share(each.share, each.share_error))
                for name, each in unexplained.items()
            ),
            ("the model's own doubt", *_share(rest, error)),
        ]
        tables.append(Table(("of all doubt", "share", "±"), lines))
    if of_model:
        small = [part for name, part in of_model.items() if _is_small(name, part)]
        split = [
            (name, *_share(part.model_share, part.model_share_error), f"{part.share:.1%}", meaning(name, has_families))
            for name, part in of_model.items()
            if len(small) < 2 or not _is_small(name, part)
        ]
        if len(small) > 1:
            share, of_all = (math.fsum(getattr(part, each) for part in small) for each in ("model_share", "share"))
            error = math.sqrt(math.fsum(part.model_share_error**2 for part in small))
            split.append(("other", *_share(share, error), f"{of_all:.1%}", f"{len(small)} interactions below 1% each"))
        tables.append(Table(("of the model's own doubt", "share", "±", "of all", ""), split))
    return tables


def _is_small(name: str, part: Overall) -> bool:
    """True of an interaction that is too small for a separate line."""
    return " x " in name and part.model_share < _SMALL


def _share(share: float, error: float) -> tuple[str, str]:
    return f"{share:.1%}", f"{error:.1%}" if math.isfinite(error) else "-"


def gaps_table(gaps: Mapping[str, Gap]) -> Table:
    """Return the missing values by column, for people."""
    return Table(
        ("missing", "rows", "expected fall", "measure next in"),
        [(name, gap.rows, f"{gap.expected_fall:.1%}", gap.measure_next) for name, gap in gaps.items()],
    )


def as_table(table: Any, how: Format | None = None) -> RawTable:
    """Return a frame, a dictionary of columns, or a file as a table of cells."""
    if isinstance(table, RawTable):
        return table
    return read(table, how) if isinstance(table, str | Path) else frames.table_of(table, how)


def _warn(notes: Sequence[str]) -> None:
    for note in notes:
        warnings.warn(note, stacklevel=3)


def _check_writable(folder: Path) -> None:
    nearest = next(path for path in (folder, *folder.parents) if path.exists())
    if not nearest.is_dir():
        raise FileExistsError(f"{nearest} is a file: name a folder")
    if not os.access(nearest, os.W_OK | os.X_OK):
        raise PermissionError(f"{nearest} cannot be written to: name another folder")


def check_free(folder: Path, overwrite: bool) -> None:
    """Raise, before anything is trained, if a run cannot be written there."""
    _check_writable(folder.resolve())
    if folders.is_free(folder):
        return
    if not folder.is_dir():
        raise FileExistsError(f"{folder} is a file: name a folder")
    if not folders.is_run(folder):
        raise FileExistsError(f"{folder} holds other files: name an empty folder")
    with suppress(FileError):  # one that is damaged may be replaced
        if JSON not in Run.open(folder):
            raise FileExistsError(f"{folder} holds a run that is not of a table: name another folder")
    if not overwrite:
        raise FileExistsError(f"{folder} holds a run already: name another folder, or use {option('overwrite', True)}")


def _how_to_fit(folder: Path) -> str:
    if language() == "command":
        return f"wherefrom fit train.csv --target y --out {folder}"
    return f"wf.fit(table, target='y').save({str(folder)!r})"


def command_line() -> str:
    """Return the command as it was written, for the record."""
    import shlex

    return shlex.join(["wherefrom", *sys.argv[1:]])
