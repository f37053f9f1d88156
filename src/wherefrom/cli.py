"""The command `wherefrom`. What needs torch is imported inside the commands, so that help comes at once."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import typer
import typer.core

UsageError: Any = typer.BadParameter.__mro__[1]  # click's own, wherever typer keeps it


class OneLineErrors(typer.core.TyperGroup):
    """What a user can mend is said in one line; anything else is ours, and keeps its traceback."""

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except UsageError as error:
            if type(error).__name__ == "NoArgsIsHelpError":
                raise
            where = error.ctx.command_path if error.ctx else "wherefrom"
            typer.echo(f"wherefrom: {error.format_message().rstrip('.')} (see {where} --help)", err=True)
            raise typer.Exit(2) from error
        except BrokenPipeError:  # whoever read our output has seen enough
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            raise typer.Exit(0) from None
        except (ImportError, OSError, ValueError) as error:
            typer.echo(f"error: {error}", err=True)
            raise typer.Exit(1) from error
        except RuntimeError as error:
            from wherefrom.posterior import DivergedError

            if not isinstance(error, DivergedError):
                raise
            typer.echo(f"error: {error}", err=True)
            raise typer.Exit(1) from error


@contextmanager
def one_line() -> Iterator[None]:
    """The same for the commands that take a user's own files: exit code 2 says that it is the user's to mend."""
    try:
        yield
    except BrokenPipeError:
        raise
    except (ImportError, OSError, ValueError, RuntimeError) as error:
        if isinstance(error, RuntimeError):
            from wherefrom.posterior import DivergedError

            if not isinstance(error, DivergedError):
                raise
        typer.echo(f"wherefrom: {' '.join(str(error).split())}", err=True)
        raise typer.Exit(2) from error


app = typer.Typer(
    cls=OneLineErrors,
    help="How sure a neural network is, and where its doubt comes from.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)
reproduce = typer.Typer(help="Redo the paper's figures and tables from real trainings.", no_args_is_help=True)
app.add_typer(reproduce, name="reproduce")

Seed = Annotated[int, typer.Option(help="All random choices follow from it.")]
Quiet = Annotated[bool, typer.Option("--quiet", help="No progress bars.")]

Json = Annotated[bool, typer.Option("--json", help="One JSON document instead of words.")]
Silent = Annotated[bool, typer.Option("--quiet", help="Nothing but what was asked for, and errors.")]
RunFolder = Annotated[Path, typer.Argument(help="Folder that wherefrom fit wrote.")]
NewRows = Annotated[Path, typer.Argument(help="CSV (also .csv.gz, or - for standard input) or Parquet file.")]
Separator = Annotated[str | None, typer.Option(help="Of the cells; found out if it is not said.")]
Decimal = Annotated[str | None, typer.Option(help="Sign in numbers, . or , and found out if it is not said.")]
Encoding = Annotated[str | None, typer.Option(help="Of the text: UTF-8, else Windows-1252, if it is not said.")]
Missing = Annotated[
    list[str] | None, typer.Option(help="A further word for a missing value, such as unknown; may be repeated.")
]
Columns = list[str] | None


@app.command()
def fit(
    table: Annotated[Path, typer.Argument(help="CSV (also .csv.gz, or - for standard input) or Parquet file.")],
    target: Annotated[str, typer.Option(help="The column to predict.")],
    out: Annotated[Path, typer.Option(help="Folder for the run.")],
    task: Annotated[str | None, typer.Option(help="regression or classification; by the target if not said.")] = None,
    over: Annotated[
        str | None,
        typer.Option(help="Choices to marginalise: theta0=5,t=swag,F=dropout; also order=, h=, D=, theta0+order=."),
    ] = None,
    recipe: Annotated[str | None, typer.Option(help="The same by name: multi_swag, deep_ensemble, ...")] = None,
    draws: Annotated[int | None, typer.Option(help="Networks to train for the recipe (5).")] = None,
    noise: Annotated[str, typer.Option(help="Of a quantity: fit, predicted, none, or a standard deviation.")] = "fit",
    epochs: Annotated[str, typer.Option(help="auto: found by a first network; or a number.")] = "auto",
    budget: Annotated[
        str | None, typer.Option(help="Time to spend, such as 5min: as many draws as fit are trained.")
    ] = None,
    calibrate: Annotated[
        str, typer.Option(help="auto, variance, temperature, conformal or none, by rows held out.")
    ] = "auto",
    number: Annotated[Columns, typer.Option(help="A column that is a number; may be repeated.")] = None,
    text: Annotated[Columns, typer.Option(help="A column that is text, such as a code of digits.")] = None,
    date: Annotated[
        Columns, typer.Option(help="A column of dates, if need be with their format: when=%d/%m/%Y.")
    ] = None,
    drop: Annotated[Columns, typer.Option(help="A column to leave out.")] = None,
    hidden: Annotated[
        str | None, typer.Option(help="Hidden units by layer, such as 64,64; by the rows if not said.")
    ] = None,
    dropout: Annotated[float | None, typer.Option(help="Dropout rate of the network (0.05).")] = None,
    lr: Annotated[float | None, typer.Option(help="Learning rate of adam (0.003).")] = None,
    batch_size: Annotated[int | None, typer.Option(help="Rows in a batch; by the rows if not said.")] = None,
    held_out: Annotated[float, typer.Option(help="Share of rows to calibrate and test by, 6,000 at most.")] = 0.15,
    level: Annotated[float, typer.Option(help="Of the intervals.")] = 0.95,
    samples: Annotated[int, typer.Option(help="Samples of each network at prediction.")] = 100,
    separator: Separator = None,
    decimal: Decimal = None,
    encoding: Encoding = None,
    missing: Missing = None,
    no_data: Annotated[
        bool, typer.Option("--no-data", help="Keep no rows in the run, not even for its report.")
    ] = False,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace a run that is there.")] = False,
    seed: Seed = 0,
    quiet: Silent = False,
    json: Json = False,
) -> None:
    """Learn to predict a column of your own table, and how sure to be."""
    with one_line():
        from wherefrom.tables import commands, fitting, plan
        from wherefrom.tables.reading import Format

        kinds = dict.fromkeys(number or (), "number") | dict.fromkeys(text or (), "text")
        for one in date or ():
            name, _, written = one.partition("=")
            kinds[name] = f"date:{written}" if written else "date"
        kinds |= dict.fromkeys(drop or (), "drop")
        if epochs != "auto" and not epochs.isdigit():
            raise ValueError(f"--epochs is auto, or a number, not {epochs!r}")
        request = fitting.Request(
            target=target,
            task=task,
            kinds=kinds,
            over=over,
            recipe=recipe,
            draws=draws,
            settings=plan.Settings(_whole_numbers(hidden), dropout, lr, batch_size, noise),
            epochs=None if epochs == "auto" else int(epochs),
            budget=None if budget is None else fitting.seconds(budget),
            calibrate=calibrate,
            held_out=held_out,
            level=level,
            samples=samples,
            seed=seed,
        )
        how = Format(separator, decimal, encoding, tuple(missing or ()))
        talk = commands.Talk(quiet, json)
        commands.fit_table(table, out, request, how, overwrite=overwrite, keeps_data=not no_data, talk=talk)


def _whole_numbers(written: str | None) -> tuple[int, ...] | None:
    if written is None:
        return None
    try:
        return tuple(int(width) for width in written.split(","))
    except ValueError:
        raise ValueError(f"--hidden is the units of each layer, such as 64,64, not {written!r}") from None


@app.command()
def predict(
    run: RunFolder,
    table: NewRows,
    out: Annotated[
        Path | None, typer.Option(help="CSV or Parquet file, by its ending; standard output if not said, or -.")
    ] = None,
    level: Annotated[float | None, typer.Option(help="Of the intervals; the run's own if not said (0.95).")] = None,
    keep: Annotated[Columns, typer.Option(help="A column of the table to write beside; may be repeated.")] = None,
    samples: Annotated[int | None, typer.Option(help="Samples of each network; the run's own if not said.")] = None,
    method: Annotated[str, typer.Option(help="monte_carlo, one_shot, or auto.")] = "monte_carlo",
    separator: Separator = None,
    decimal: Decimal = None,
    encoding: Encoding = None,
    missing: Missing = None,
    quiet: Silent = False,
    json: Json = False,
) -> None:
    """Predict every row of a table: mean and interval, or classes; whose doubt it is; and which rows are strange."""
    with one_line():
        from wherefrom.tables import commands
        from wherefrom.tables.reading import Format

        if level is not None and not 0 < level < 1:
            raise ValueError(f"--level lies between 0 and 1, as 0.95, unlike {level}")
        commands.predict_table(
            run,
            table,
            out,
            Format(separator, decimal, encoding, tuple(missing or ())),
            level=level,
            samples=samples,
            method=method,  # type: ignore[arg-type]
            keep=keep or (),
            talk=commands.Talk(quiet, json),
        )


@app.command()
def sources(
    run: RunFolder,
    table: NewRows,
    rows: Annotated[int, typer.Option(help="How many rows to list, those most in doubt.")] = 10,
    out: Annotated[Path | None, typer.Option(help="CSV or Parquet file for every row's shares.")] = None,
    samples: Annotated[int | None, typer.Option(help="Samples of each network; the run's own if not said.")] = None,
    separator: Separator = None,
    decimal: Decimal = None,
    encoding: Encoding = None,
    missing: Missing = None,
    quiet: Silent = False,
    json: Json = False,
) -> None:
    """Say where the doubt comes from, over a table and at the rows most in doubt."""
    with one_line():
        from wherefrom.tables import commands
        from wherefrom.tables.reading import Format

        how = Format(separator, decimal, encoding, tuple(missing or ()))
        commands.sources_table(run, table, out, how, rows=rows, samples=samples, talk=commands.Talk(quiet, json))


@app.command()
def report(
    run: RunFolder,
    table: Annotated[Path | None, typer.Argument(help="Rows with the target; the run's own if not said.")] = None,
    out: Annotated[Path | None, typer.Option(help="HTML file (report.html in the run's folder).")] = None,
    separator: Separator = None,
    decimal: Decimal = None,
    encoding: Encoding = None,
    missing: Missing = None,
    quiet: Silent = False,
    json: Json = False,
) -> None:
    """Write a page about a run: how good it is, how well calibrated, and where its doubt comes from."""
    with one_line():
        from wherefrom.tables import commands
        from wherefrom.tables.reading import Format

        how = Format(separator, decimal, encoding, tuple(missing or ()))
        commands.report_table(run, table, out, how, talk=commands.Talk(quiet, json))


@app.command()
def demo(
    out: Annotated[Path, typer.Option(help="Folder for the picture.")] = Path("wherefrom-demo"),
    seed: Seed = 0,
    quiet: Quiet = False,
) -> None:
    """Train on a small medical data set, and explain every step of what comes out."""
    from wherefrom.report.demo import run

    run(out, seed, progress=False if quiet else None)


@reproduce.command()
def toy(
    out: Annotated[Path, typer.Option(help="Folder for the figure and its scores.")] = Path("reproduced"),
    seed: Seed = 0,
    quiet: Quiet = False,
) -> None:
    """The paper's toy regression: all eight subsets of {M, t, theta0}, for two settings of the algorithm and both."""
    from wherefrom.reproduce.toy import run

    run(out, seed, progress=False if quiet else None)


@reproduce.command()
def figure1(
    out: Annotated[Path, typer.Option(help="Folder for the figure.")] = Path("reproduced"),
    seed: Seed = 0,
    quiet: Quiet = False,
) -> None:
    """The paper's first figure, from real trainings: where t, theta0, A and F, alone and combined, send theta."""
    from wherefrom.reproduce.figure1 import run

    run(out, seed, progress=False if quiet else None)


@reproduce.command()
def uci(
    setup: Annotated[
        str, typer.Option(help="main (400 epochs), short (40 epochs), or tuned (40, tuned rates).")
    ] = "main",
    sets: Annotated[str | None, typer.Option(help="Some of the nine sets, such as boston,yacht.")] = None,
    folds: Annotated[int | None, typer.Option(help="Only the first so many of the published folds.")] = None,
    epochs: Annotated[int | None, typer.Option(help="Epochs to train for, instead of the paper's.")] = None,
    start: Annotated[float | None, typer.Option(help="When SWAG starts, as a fraction of the epochs (0.5).")] = None,
    dropout: Annotated[float | None, typer.Option(help="Dropout rate of the network (0.01).")] = None,
    method: Annotated[str, typer.Option(help="How to predict: monte_carlo, or one_shot.")] = "monte_carlo",
    beyond: Annotated[
        bool, typer.Option("--beyond", help="Also: noise, shares of the variance, calibration, paired differences.")
    ] = False,
    data: Annotated[
        Path | None,
        typer.Option(
            help="Folder with uci/<set>/data.csv.gz (header, features, target last), also WHEREFROM_DATA; "
            "other sets are downloaded, and boston also comes with mlxtend."
        ),
    ] = None,
    out: Annotated[Path, typer.Option(help="Folder for scores, tables and pictures.")] = Path("results/uci"),
    engine: Annotated[str | None, typer.Option(help="native (where numba is installed) or torch.")] = None,
    fresh: Annotated[bool, typer.Option("--fresh", help="Train everything anew instead of going on.")] = False,
    seed: Seed = 0,
    quiet: Quiet = False,
) -> None:
    """The paper's tables on nine UCI sets, beside the printed ones. An interrupted run goes on where it stopped."""
    from wherefrom.reproduce.uci import command

    named = dict.fromkeys(name.strip() for name in (sets or "").split(",") if name.strip())
    asked: dict[str, Any] = {} if sets is None else {"sets": tuple(named)}
    command.run(
        command.Request(
            setup=setup,
            folds=folds,
            epochs=epochs,
            start=start,
            dropout=dropout,
            method=method,  # type: ignore[arg-type]
            data=data,
            out=out,
            seed=seed,
            engine=engine,  # type: ignore[arg-type]
            beyond=beyond,
            fresh=fresh,
            progress=False if quiet else None,
            **asked,
        )
    )


@reproduce.command()
def cifar10(
    preset: Annotated[
        str, typer.Option(help="paper (for a GPU), cpu (two cores, about an hour), or smoke (seconds, without data).")
    ] = "cpu",
    epochs: Annotated[int | None, typer.Option(help="Epochs to train for, instead of the preset's.")] = None,
    members: Annotated[int | None, typer.Option(help="Networks in each of the two sets.")] = None,
    samples: Annotated[int | None, typer.Option(help="Samples of each network where M or t is marginalised.")] = None,
    width: Annotated[float | None, typer.Option(help="Width of the network, as a multiple of VGG16's.")] = None,
    batch_norm: Annotated[bool | None, typer.Option(help="Whether VGG16 has batch normalisation.")] = None,
    device: Annotated[str, typer.Option(help="cpu, cuda, cuda:1, ...")] = "cpu",
    dtype: Annotated[str, typer.Option(help="float32 or float64.")] = "float32",
    autocast: Annotated[
        bool | None, typer.Option(help="Multiply in bfloat16 while training; on a GPU it does, unless told otherwise.")
    ] = None,
    data: Annotated[
        Path | None,
        typer.Option(
            help="Folder with cifar10/cifar-10-batches-bin or cifar-10-binary.tar.gz, also WHEREFROM_DATA; it is "
            "downloaded otherwise. Fashion-MNIST and SVHN are used if they are there, too."
        ),
    ] = None,
    runs: Annotated[
        Path | None, typer.Option(help="Folder to keep trained networks and their answers in, and to go on from.")
    ] = None,
    out: Annotated[
        Path | None, typer.Option(help="Folder for scores, tables and pictures (results/cifar10/<preset>).")
    ] = None,
    seed: Seed = 0,
    quiet: Quiet = False,
) -> None:
    """The paper's study on CIFAR-10: NLL and accuracy by ensemble size, and doubt on images of another kind."""
    from wherefrom.reproduce.cifar10 import command

    command.run(
        command.Request(
            preset=preset,
            epochs=epochs,
            members=members,
            samples=samples,
            width=width,
            batch_norm=batch_norm,
            device=device,
            dtype=dtype,
            autocast=autocast,
            data=data,
            out=out,
            runs=runs,
            seed=seed,
            progress=False if quiet else None,
        )
    )


def version(value: bool) -> None:
    if value:
        from wherefrom import __version__

        typer.echo(f"wherefrom {__version__}")
        raise typer.Exit


@app.callback()
def main(
    show_version: Annotated[
        bool, typer.Option("--version", callback=version, is_eager=True, help="Print the version and stop.")
    ] = False,
) -> None:
    pass
