"""The command `wherefrom`. What needs torch is imported inside the commands, so that help comes at once."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer
import typer.core


class OneLineErrors(typer.core.TyperGroup):
    """What a user can mend is said in one line; anything else is ours, and keeps its traceback."""

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except (ImportError, OSError, ValueError) as error:
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
reproduce = typer.Typer(help="Redraw the paper's figures from real trainings.", no_args_is_help=True)
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
