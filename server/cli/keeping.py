"""What is kept: ``delete``, ``backup``, ``restore``, ``export``, ``import``. All but ``delete`` need the database."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from server.cli.errors import CommandError
from server.client import connect
from server.settings import Settings

if TYPE_CHECKING:
    from sqlalchemy.orm import Session

    from server.transfer.tables import Selection

Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")]


def register(app: typer.Typer) -> None:
    """Add this module's commands."""
    app.command()(delete)
    app.command()(backup)
    app.command()(restore)
    app.command()(export)
    app.command("import")(import_)


def delete(
    experiment: Annotated[int | None, typer.Argument(help="Experiment to delete, with its runs.")] = None,
    run: Annotated[int | None, typer.Option(help="Delete this run only.")] = None,
    yes: Yes = False,
) -> None:
    """Delete an experiment or a run that has ended, with everything it left; undelete brings it back for a while."""
    if (experiment is None) == (run is None):
        raise CommandError("name what to delete: an experiment's number, or --run and a run's number")
    subject = f"experiment {experiment}" if run is None else f"run {run}"
    if not yes:
        typer.confirm(f"Delete {subject}?", abort=True)
    with connect(Settings()) as client:
        client.delete(f"/api/v1/experiments/{experiment}" if run is None else f"/api/v1/runs/{run}")
    undo = f"ampboard undelete {experiment}" if run is None else f"ampboard undelete --runs {run}"
    typer.echo(f"{subject} is deleted; '{undo}' brings it back within AMPBOARD_UNDO_S, then it is purged")


def backup(target: Annotated[Path, typer.Argument(help="File to write; it must not be there yet.")]) -> None:
    """Copy the embedded database as it is at this moment, also while it is in use."""
    from server.cli.sizes import readable
    from server.db.backup import back_up

    size = back_up(Settings().sqlalchemy_url, target)
    typer.echo(f"{target}: {readable(size)}, checked")


def restore(
    source: Annotated[Path, typer.Argument(help="A file that 'ampboard backup' wrote.", exists=True, dir_okay=False)],
    yes: Yes = False,
) -> None:
    """Put a backup in the place of the embedded database, whose former content is kept beside it."""
    from server.cli.local import held, prepare_folder
    from server.db.backup import restore as restore_database

    settings = Settings()
    if not yes:
        typer.confirm(f"Replace the database in {settings.data_dir} by {source}?", abort=True)
    prepare_folder(settings)
    with held(settings):
        former = restore_database(settings.sqlalchemy_url, source)
    kept = f"; the former one is {former}" if former is not None else ""
    typer.echo(f"the database is that of {source}{kept}")


def export(
    target: Annotated[Path, typer.Argument(help="File (json) or folder (csv, parquet) to write.")],
    experiment: Annotated[int | None, typer.Option(help="Only this experiment.")] = None,
    run: Annotated[int | None, typer.Option(help="Only this run, with its experiment's row.")] = None,
    form: Annotated[str, typer.Option("--format", help="json, csv or parquet.")] = "json",
) -> None:
    """Write experiments, runs, points, events, logs and artifacts; 'ampboard import' reads all of it back."""
    from server.db.upgrade import open_database
    from server.transfer.files import FORMATS
    from server.transfer.write import write

    if form not in FORMATS:
        raise CommandError(f"--format {form}: choose one of {', '.join(FORMATS)}")
    database = open_database(Settings())
    try:
        with database.read() as session:
            chosen = _selection(session, experiment, run)
        num_points = write(database, chosen, form, target)
    finally:
        database.dispose()
    typer.echo(f"{target}: {len(chosen.experiment_ids)} experiments, {len(chosen.run_ids)} runs, {num_points:,} points")


def import_(source: Annotated[Path, typer.Argument(help="What 'ampboard export' wrote.", exists=True)]) -> None:
    """Add what an export holds, under new numbers."""
    from server.db.upgrade import open_database
    from server.transfer.files import source_of
    from server.transfer.load import load

    database = open_database(Settings())
    try:
        num_experiments, num_runs = load(database, source_of(source))
    finally:
        database.dispose()
    typer.echo(f"{num_experiments} experiments and {num_runs} runs are here now")


def _selection(session: Session, experiment: int | None, run: int | None) -> Selection:
    from server.transfer.tables import select_all, select_experiment, select_run

    if experiment is not None and run is not None:
        raise CommandError("--experiment and --run: name one of them")
    if experiment is None and run is None:
        return select_all(session)
    chosen = select_run(session, run) if run is not None else select_experiment(session, experiment or 0)
    if not chosen.experiment_ids:
        raise CommandError(f"{f'run {run}' if run is not None else f'experiment {experiment}'} is not here")
    return chosen
