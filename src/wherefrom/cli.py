"""The command `wherefrom`. What needs torch is imported inside the commands, so that help comes at once."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Annotated, Any

import typer
import typer.core


class OneLineErrors(typer.core.TyperGroup):
    """What a user can mend is said in one line; anything else is ours, and keeps its traceback."""

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
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
