"""The command `wherefrom`. What needs torch is imported inside the commands, so that help comes at once."""

from __future__ import annotations

import inspect
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import typer
import typer.core

UsageError: Any = typer.BadParameter.__mro__[1]  # click's own, wherever typer keeps it


class OneLineErrors(typer.core.TyperGroup):
    """Print input errors in one line, with exit code 2; internal errors keep their traceback."""

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except UsageError as error:
            if type(error).__name__ == "NoArgsIsHelpError":
                raise
            where = error.ctx.command_path if error.ctx else "wherefrom"
            typer.echo(f"wherefrom: {error.format_message().rstrip('.')} (see {where} --help)", err=True)
            raise typer.Exit(2) from error
        except KeyboardInterrupt as stop:
            words = f"stopped, and {stop if stop.args else 'nothing was written'}"
            typer.echo(f"wherefrom: {stop if type(stop).__name__ == 'Interrupted' else words}", err=True)
            raise typer.Exit(130) from None
        except BrokenPipeError:  # whoever read our output has seen enough
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            raise typer.Exit(0) from None
        except (ImportError, OSError, ValueError, RuntimeError) as error:
            if isinstance(error, RuntimeError) and type(error).__name__ != "DivergedError":
                raise
            typer.echo(f"wherefrom: {' '.join(str(error).split())}", err=True)
            raise typer.Exit(2) from error


# Headings under which the help of `fit` lists its options; those without one come first.
_SECTIONS = {
    "The target": ("task", "likelihood", "event", "entry", "least", "levels", "exposure"),
    "Columns": ("number", "text", "date", "drop", "group", "weight"),
    "Training": ("families", "epochs", "budget", "hidden", "dropout", "lr", "batch_size", "noise", "most_rows", "seed"),
    "Uncertain choices": ("over", "recipe", "draws"),
    "Intervals and test rows": ("level", "calibrate", "samples", "held_out", "test", "test_after"),
    "Files": ("no_data", "overwrite", "separator", "decimal", "encoding", "missing", "most_unpacked"),
    "The machine": ("device", "engine", "workers", "ray"),
}


class Sectioned(typer.core.TyperCommand):
    """List options under headings."""

    def format_options(self, ctx: Any, formatter: Any) -> None:
        heading_of = {name: heading for heading, names in _SECTIONS.items() for name in names}
        sections: dict[str, list[tuple[str, str]]] = {name: [] for name in ("Arguments", "Options", *_SECTIONS)}
        for parameter in self.get_params(ctx):
            if (lines := parameter.get_help_record(ctx)) is not None:
                kind = "Arguments" if parameter.param_type_name == "argument" else "Options"
                sections[heading_of.get(parameter.name, kind)].append(lines)
        for heading, options in sections.items():
            if options:
                with formatter.section(heading):
                    formatter.write_dl(options)


app = typer.Typer(
    cls=OneLineErrors,
    help="Predict the rows of a table with neural networks: intervals, and the causes of the doubt.\n\n"
    "To see an example: wherefrom demo\n\n"
    "To begin with your table: wherefrom fit train.csv --target price --out run",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)
reproduce = typer.Typer(help="Repeat the paper's figures and tables with real trainings.", no_args_is_help=True)
app.add_typer(reproduce, name="reproduce")

Seed = Annotated[int, typer.Option(help="Seed of all random choices: the same seed gives the same result.")]
Quiet = Annotated[bool, typer.Option("--quiet", help="No progress bars.")]
RunFolder = Annotated[Path, typer.Argument(help="Folder that wherefrom fit wrote.")]
Rows = Annotated[Path, typer.Argument(help="CSV (also .csv.gz, or - for standard input) or Parquet file.")]
Samples = Annotated[int | None, typer.Option(help="Samples to draw from each network (default: as in the run).")]
Digits = Annotated[int, typer.Option(help="Significant digits of numbers, in CSV files and printed.")]
Ray = Annotated[
    str | None,
    typer.Option(help="Address of a Ray cluster to train on, such as 10.0.0.1:6379, or auto (wherefrom[ray])."),
]
Columns = list[str] | None
Keep = Annotated[Columns, typer.Option(help="A column of the table to copy; may be repeated.")]


def _of_every_table(
    separator: Annotated[str | None, typer.Option(help="Separator of cells (default: detected).")] = None,
    decimal: Annotated[str | None, typer.Option(help="Decimal sign, . or , (default: detected).")] = None,
    encoding: Annotated[
        str | None, typer.Option(help="Encoding of the text (default: detected, UTF-8 or Windows-1252).")
    ] = None,
    missing: Annotated[
        Columns, typer.Option(help="Another word for a missing value, such as unknown; may be repeated.")
    ] = None,
    most_unpacked: Annotated[
        str | None,
        typer.Option(
            help="Largest size that a compressed file may unpack to, such as 50GB (default: 100 times its size)."
        ),
    ] = None,
    quiet: Annotated[bool, typer.Option("--quiet", help="Print the result and errors only.")] = False,
    json: Annotated[bool, typer.Option("--json", help="Print one JSON document instead of text.")] = False,
) -> dict[str, Any]:
    """Return how a file is read, and who listens, as the commands take them."""
    from wherefrom.tables.commands import Talk
    from wherefrom.tables.raw import Format
    from wherefrom.tables.unpacking import as_bytes

    how = Format(separator, decimal, encoding, tuple(missing or ()), as_bytes(most_unpacked))
    return {"how": how, "talk": Talk(quiet, json)}


def of_tables(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command that takes `how` and `talk` the options that say what they are."""
    specific, common = (inspect.signature(each, eval_str=True) for each in (command, _of_every_table))

    def run(**given: Any) -> None:
        from wherefrom.tables.wording import speaking

        options = {name: given.pop(name) for name in common.parameters}
        with speaking("command"):
            command(**given, **_of_every_table(**options))

    kept = [each for name, each in specific.parameters.items() if name not in ("how", "talk")]
    parameters = [*kept, *common.parameters.values()]
    parameters = [each.replace(kind=inspect.Parameter.KEYWORD_ONLY) for each in parameters]
    run.__name__, run.__doc__ = command.__name__, command.__doc__
    run.__annotations__ = {each.name: each.annotation for each in parameters}
    run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    return run


@app.command(cls=Sectioned)
@of_tables
def fit(
    table: Rows,
    target: Annotated[str, typer.Option(help="The column to predict.")],
    out: Annotated[Path, typer.Option(help="Folder for the run.")],
    predict: Annotated[
        Path | None,
        typer.Option(help="A file of rows to predict afterwards; new.csv is predicted into new_predictions.csv."),
    ] = None,
    task: Annotated[
        str | None,
        typer.Option(
            help="regression, positive, classification, counts, ordinal, quantiles, survival (default: by the target)."
        ),
    ] = None,
    likelihood: Annotated[
        str,
        typer.Option(help="Distribution of a quantity: auto, gaussian, student, positive or counts."),
    ] = "auto",
    event: Annotated[
        str | None,
        typer.Option(help="For survival times: column that says whether the event was seen: died, or status=dead."),
    ] = None,
    entry: Annotated[
        str | None, typer.Option(help="For survival times: column with the time from which a row was observed.")
    ] = None,
    least: Annotated[
        str,
        typer.Option(
            help="Lowest possible value of a quantity: predictions and intervals end there. A number, none, or auto: "
            "0 if no training value is negative, from 100 rows on."
        ),
    ] = "auto",
    levels: Annotated[
        str | None, typer.Option(help="Ordered classes, from the lowest to the highest: low,medium,high.")
    ] = None,
    exposure: Annotated[
        str | None, typer.Option(help="For counts: column with the time or size over which each row was counted.")
    ] = None,
    over: Annotated[
        str | None,
        typer.Option(
            help="Training choices treated as uncertain: theta0=5,t=swag,F=dropout; also order=, h=, D=, theta0+order=."
        ),
    ] = None,
    recipe: Annotated[
        str | None, typer.Option(help="Name of a list of such choices: multi_swag, deep_ensemble, ...")
    ] = None,
    draws: Annotated[
        int | None,
        typer.Option(help="Networks in each fold (default: 3; without folds 5)."),
    ] = None,
    families: Annotated[
        str,
        typer.Option(
            help="Kinds of model: network,trees,process; auto adds trees and a Gaussian process if they help."
        ),
    ] = "auto",
    noise: Annotated[
        str,
        typer.Option(help="Noise of a quantity: fit (one value), predicted (for each row), none, a number, or auto."),
    ] = "auto",
    epochs: Annotated[str, typer.Option(help="Number of epochs, or auto: chosen on validation rows.")] = "auto",
    budget: Annotated[
        str | None,
        typer.Option(help="Approximate time for training, such as 5min: trains as many networks as possible."),
    ] = None,
    calibrate: Annotated[
        str, typer.Option(help="Calibration on left-out rows: auto, variance, shape, temperature, conformal or none.")
    ] = "auto",
    number: Annotated[Columns, typer.Option(help="A column of numbers; may be repeated.")] = None,
    text: Annotated[Columns, typer.Option(help="A column of text, such as a code of digits; may be repeated.")] = None,
    date: Annotated[
        Columns, typer.Option(help="A column of dates, with their format if needed: when=%d/%m/%Y; may be repeated.")
    ] = None,
    drop: Annotated[Columns, typer.Option(help="A column to leave out; may be repeated.")] = None,
    group: Annotated[
        str | None,
        typer.Option(help="A column, such as patient_id: its rows stay together in every split."),
    ] = None,
    weight: Annotated[
        str | None, typer.Option(help="A column of row weights: a weight of 2 counts the row twice.")
    ] = None,
    hidden: Annotated[
        str | None, typer.Option(help="Hidden units of each layer, such as 64,64 (default: chosen).")
    ] = None,
    dropout: Annotated[float | None, typer.Option(help="Dropout rate of the network (default: chosen).")] = None,
    lr: Annotated[float | None, typer.Option(help="Learning rate of adam (default: chosen).")] = None,
    batch_size: Annotated[
        int | None, typer.Option(help="Rows in a batch (default: depends on the number of rows).")
    ] = None,
    held_out: Annotated[
        float | None,
        typer.Option(help="Share of rows to hold out for calibration and testing (default: none up to 50,000 rows)."),
    ] = None,
    test: Annotated[Path | None, typer.Option(help="A file of test rows.")] = None,
    test_after: Annotated[
        str | None, typer.Option(help="A date, or column=date: rows from this date on are test rows.")
    ] = None,
    most_rows: Annotated[
        int,
        typer.Option(
            help="Largest number of rows to train on. If the table has more, this many are drawn at random. Above a "
            "million, rows are kept on disk while networks train."
        ),
    ] = 1_000_000,
    level: Annotated[float, typer.Option(help="Level of the intervals.")] = 0.95,
    samples: Annotated[
        int | None, typer.Option(help="Samples to draw from each network (default: 500 from all networks together).")
    ] = None,
    no_data: Annotated[
        bool, typer.Option("--no-data", help="Store no training rows in the run, not even for the report.")
    ] = False,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace an existing run.")] = False,
    device: Annotated[str, typer.Option(help="cpu, cuda, cuda:1, ...")] = "cpu",
    engine: Annotated[str, typer.Option(help="auto, fastest, native (needs numba) or torch.")] = "auto",
    workers: Annotated[int | None, typer.Option(help="Threads to train with (default: all cores).")] = None,
    ray: Ray = None,
    seed: Seed = 0,
    *,
    how: Any,
    talk: Any,
) -> None:
    """Train a model that predicts a column of your table. Every prediction has an interval."""
    from wherefrom.tables import commands
    from wherefrom.tables.looking import How
    from wherefrom.tables.options import Request

    answers = None if predict is None else commands.answers_of(predict, talk)
    request = Request.of(
        target,
        task=task,
        likelihood=likelihood,
        event=event,
        entry=entry,
        least=least,
        levels=levels,
        exposure=exposure,
        over=over,
        recipe=recipe,
        draws=draws,
        families=families,
        noise=noise,
        epochs=epochs,
        budget=budget,
        calibrate=calibrate,
        number=number or (),
        text=text or (),
        date=date or (),
        drop=drop or (),
        group=group,
        weight=weight,
        hidden=hidden,
        dropout=dropout,
        lr=lr,
        batch_size=batch_size,
        held_out=held_out,
        test_after=test_after,
        most_rows=most_rows,
        level=level,
        samples=samples,
        seed=seed,
        device=device,
        engine=engine,
        workers=workers,
        compute=_on_cluster(ray),
    )
    commands.fit_table(table, out, request, how, test=test, overwrite=overwrite, keeps_data=not no_data, talk=talk)
    if predict is not None:
        commands.predict_table(commands.Question(out, predict, how, How()), answers, talk)


@app.command()
@of_tables
def predict(
    run: RunFolder,
    table: Rows,
    out: Annotated[
        Path | None, typer.Option(help="CSV or Parquet file, by its ending (default: standard output, also -).")
    ] = None,
    level: Annotated[float | None, typer.Option(help="Level of the intervals (default: that of the run).")] = None,
    keep: Keep = None,
    samples: Samples = None,
    method: Annotated[str, typer.Option(help="monte_carlo, one_shot, or auto.")] = "monte_carlo",
    digits: Digits = 4,
    *,
    how: Any,
    talk: Any,
) -> None:
    """Predict every row of a table. Columns: mean and interval, or class; causes of the doubt; what to measure next;
    whether the row is unusual."""
    from wherefrom.tables import commands
    from wherefrom.tables.looking import How

    asked = How(level, samples, method, keep or ())  # type: ignore[arg-type]
    commands.predict_table(commands.Question(run, table, how, asked, digits), out, talk)


@app.command()
@of_tables
def sources(
    run: RunFolder,
    table: Rows,
    rows: Annotated[
        int, typer.Option(help="Number of rows to list: those with the largest doubt caused by training choices.")
    ] = 10,
    out: Annotated[Path | None, typer.Option(help="CSV or Parquet file for the shares of every row.")] = None,
    keep: Keep = None,
    samples: Samples = None,
    digits: Digits = 4,
    *,
    how: Any,
    talk: Any,
) -> None:
    """Print the causes of the doubt. First over all rows of a table, then for the rows with the largest doubt."""
    from wherefrom.tables import commands
    from wherefrom.tables.looking import How

    asked = How(samples=samples, keep=keep or ())
    commands.sources_table(commands.Question(run, table, how, asked, digits), out, rows, talk)


@app.command()
@of_tables
def report(
    run: RunFolder,
    table: Annotated[Path | None, typer.Argument(help="Rows with the target (default: those kept in the run).")] = None,
    out: Annotated[Path | None, typer.Option(help="HTML file (default: report.html in the folder of the run).")] = None,
    *,
    how: Any,
    talk: Any,
) -> None:
    """Write an HTML page about a run. It shows scores, causes of the doubt, unusual rows, and how far to trust them."""
    from wherefrom.tables import commands

    commands.report_table(run, table, out, how, talk=talk)


Key = Annotated[Path, typer.Option(help="File with the key: 16 bytes or more, or an Ed25519 key in PEM form.")]


@app.command(name="compile")
def compile_() -> None:
    """Compile code once for this machine. The first fit then need not wait for it."""
    import time

    from wherefrom.ahead import compile_kernels
    from wherefrom.cache import user_cache

    began = time.monotonic()
    compile_kernels()
    typer.echo(f"kernels ready in {time.monotonic() - began:.1f} s, kept in {user_cache()}")


@app.command()
def check(
    run: RunFolder,
    json: Annotated[bool, typer.Option("--json", help="Print JSON instead of text.")] = False,
) -> None:
    """Verify the digest of every file of a run. Exit code 2 if a file is damaged."""
    from wherefrom.files import folders

    checked = folders.check(run)
    total = len(checked.whole) + len(checked.damaged)
    if json:
        from json import dumps

        document = {"whole": checked.whole, "damaged": dict(checked.damaged), "others": checked.others}
        typer.echo(dumps({"run": str(run), "is_whole": checked.is_whole, **document}, indent=1))
    else:
        typer.echo(f"{run}: {len(checked.whole)} of {total} files are undamaged")
        for name, what in checked.damaged.items():
            typer.echo(f"damaged: {name}: {what}")
        if checked.others:
            typer.echo(f"not of the run: {', '.join(checked.others)}")
        if checked.damaged and all(name.startswith("member-") for name in checked.damaged):
            typer.echo(f"wf.load({str(run)!r}, partial=True) loads the undamaged members")
    if not checked.is_whole:
        raise typer.Exit(2)


@app.command()
def sign(run: RunFolder, key: Key) -> None:
    """Sign a run with a key. wherefrom verify then detects changes."""
    from wherefrom.files import folders

    method = folders.sign(run, key)
    typer.echo(f"{run} is signed ({method}): wherefrom verify {run} --key {key}")


@app.command()
def verify(run: RunFolder, key: Key) -> None:
    """Verify a signed run. Exit code 2 if a file is damaged, or was changed since the run was signed."""
    from wherefrom.files import folders

    folders.verify(run, key)
    typer.echo(f"{run} is undamaged and unchanged since it was signed")


@app.command()
def serve(
    run: RunFolder,
    host: Annotated[
        str,
        typer.Option(
            help="Address to listen at. With 127.0.0.1, only programs on this machine can connect, and no token is "
            "needed. Any other address needs a token: a secret that clients send with each request."
        ),
    ] = "127.0.0.1",
    port: Annotated[int, typer.Option(help="Port to listen at.")] = 8000,
    token_file: Annotated[
        Path | None,
        typer.Option(
            help="File with the token, 16 characters or more (default: environment variable WHEREFROM_TOKEN)."
        ),
    ] = None,
    most_rows: Annotated[int, typer.Option(help="Largest number of rows in a request.")] = 10_000,
    most_size: Annotated[str, typer.Option(help="Largest size of a request, such as 20MB.")] = "20MB",
    most_waiting: Annotated[
        int, typer.Option(help="Largest number of waiting requests; further ones are refused.")
    ] = 256,
) -> None:
    """Start a web server that predicts rows. Requests and answers are JSON over HTTP."""
    from wherefrom import serving
    from wherefrom.tables.unpacking import as_bytes
    from wherefrom.tables.wording import speaking

    limits = serving.Limits(most_rows, as_bytes(most_size) or 0, most_waiting)
    token = serving.read_token(token_file)
    with speaking("command"):
        serving.check_token(host, token)
        typer.echo(f"{run} at http://{host}:{port}, described at /docs; stop it by Ctrl-C", err=True)
        serving.serve(run, host, port, token, limits)


@app.command()
def demo(
    out: Annotated[Path, typer.Option(help="Folder for the tables, the run, a picture and the report.")] = Path(
        "wherefrom-demo"
    ),
    seed: Seed = 0,
    quick: Annotated[
        bool, typer.Option("--quick", help="Train fewer networks for fewer epochs: faster, with worse predictions.")
    ] = False,
    no_open: Annotated[bool, typer.Option("--no-open", help="Do not open the report in the browser.")] = False,
    quiet: Quiet = False,
) -> None:
    """Predict cars, and show what causes the doubt. Some cars have missing values, one a wrong unit, some are rare."""
    from wherefrom.report.demo import run

    run(out, seed, quick=quick, quiet=quiet, opens=not no_open)


@reproduce.command()
def toy(
    out: Annotated[Path, typer.Option(help="Folder for the figure and its scores.")] = Path("reproduced"),
    seed: Seed = 0,
    quiet: Quiet = False,
) -> None:
    """Repeat the paper's toy regression. All subsets of {M, t, theta0}, for two settings of the algorithm."""
    from wherefrom.reproduce.toy import run

    run(out, seed, progress=False if quiet else None)


@reproduce.command()
def figure1(
    out: Annotated[Path, typer.Option(help="Folder for the figure.")] = Path("reproduced"),
    seed: Seed = 0,
    quiet: Quiet = False,
) -> None:
    """Draw the paper's first figure from real trainings. It shows how t, theta0, A and F change the trained weight."""
    from wherefrom.reproduce.figure1 import run

    run(out, seed, progress=False if quiet else None)


@reproduce.command()
def uci(
    setup: Annotated[
        str, typer.Option(help="main (400 epochs), short (40 epochs), or tuned (40, tuned rates).")
    ] = "main",
    sets: Annotated[str | None, typer.Option(help="Some of the nine sets, such as boston,yacht.")] = None,
    folds: Annotated[int | None, typer.Option(help="Use only this many of the published folds.")] = None,
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
    engine: Annotated[str | None, typer.Option(help="native (needs numba) or torch.")] = None,
    ray: Ray = None,
    fresh: Annotated[bool, typer.Option("--fresh", help="Train everything again, instead of continuing.")] = False,
    seed: Seed = 0,
    quiet: Quiet = False,
) -> None:
    """Repeat the paper's tables on nine UCI sets. An interrupted run continues where it stopped."""
    asked = _with_progress(locals())
    from wherefrom.reproduce.uci import command

    named = asked.pop("sets")
    if named is not None:
        asked["sets"] = tuple(dict.fromkeys(name.strip() for name in named.split(",") if name.strip()))
    command.run(command.Request(**asked))


def _on_cluster(address: str | None) -> Any:
    """Return how to compute on a Ray cluster; None without an address."""
    if address is None:
        return None
    from wherefrom.training.compute import Compute
    from wherefrom.training.executors import Ray as Cluster

    return Compute(executor=Cluster(address))


def _with_progress(options: dict[str, Any]) -> dict[str, Any]:
    """Return the options of a study, with `progress` instead of `quiet`, and `executor` instead of `ray`."""
    quiet, address = options.pop("quiet"), options.pop("ray", None)
    on_cluster = {"executor": _on_cluster(address).executor} if address is not None else {}
    return options | on_cluster | {"progress": False if quiet else None}


@reproduce.command()
def cifar10(
    preset: Annotated[
        str, typer.Option(help="paper (for a GPU), cpu (two cores, two hours), or smoke (seconds, without data).")
    ] = "cpu",
    epochs: Annotated[int | None, typer.Option(help="Epochs to train for, instead of the preset's.")] = None,
    members: Annotated[int | None, typer.Option(help="Networks in each of the two sets.")] = None,
    samples: Annotated[int | None, typer.Option(help="Samples to draw from each network if M or t is random.")] = None,
    width: Annotated[float | None, typer.Option(help="Width of the network, as a multiple of VGG16's.")] = None,
    batch_norm: Annotated[bool | None, typer.Option(help="Whether VGG16 has batch normalisation.")] = None,
    start: Annotated[
        float | None, typer.Option(help="When SWAG starts, as a fraction of the epochs (161/300).")
    ] = None,
    schedule: Annotated[
        str | None,
        typer.Option(
            help="swag: the learning rate falls before SWAG starts, and is constant while it collects; printed: the "
            "formula as the paper prints it, over all epochs."
        ),
    ] = None,
    augment: Annotated[
        bool | None,
        typer.Option(help="Only networks that train on shifted and mirrored images, or only on images as they are."),
    ] = None,
    dropout: Annotated[float | None, typer.Option(help="Dropout rate (augmented: 0.5, fitted: 0.1).")] = None,
    device: Annotated[str, typer.Option(help="cpu, cuda, cuda:1, ...")] = "cpu",
    dtype: Annotated[str, typer.Option(help="float32 or float64.")] = "float32",
    autocast: Annotated[
        bool | None, typer.Option(help="Multiply in bfloat16 while training (default: on a GPU).")
    ] = None,
    data: Annotated[
        Path | None,
        typer.Option(
            help="Folder with cifar10/cifar-10-batches-bin or cifar-10-binary.tar.gz, also WHEREFROM_DATA; it is "
            "downloaded otherwise. Fashion-MNIST and SVHN are used if they are there, too."
        ),
    ] = None,
    runs: Annotated[
        Path | None,
        typer.Option(help="Folder for trained networks and their predictions; a later call continues from it."),
    ] = None,
    out: Annotated[
        Path | None, typer.Option(help="Folder for scores, tables and pictures (results/cifar10/<preset>).")
    ] = None,
    ray: Ray = None,
    seed: Seed = 0,
    quiet: Quiet = False,
) -> None:
    """Repeat the paper's study on CIFAR-10. NLL and accuracy by ensemble size, and the doubt on other images."""
    asked = _with_progress(locals())
    from wherefrom.reproduce.cifar10 import command

    command.run(command.Request(**asked))


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
