"""``ampboard db``: the schema of the database of the settings."""

from __future__ import annotations

import typer

from server.settings import Settings

app = typer.Typer(no_args_is_help=True)


@app.callback()
def _group() -> None:
    """Keep ``upgrade`` a subcommand though it is the only one."""


@app.command()
def upgrade() -> None:
    """Create the tables, or bring them to this version; the embedded file is copied first."""
    from server.db.upgrade import expected_version, open_database
    from server.db.upgrade import upgrade as upgrade_database

    settings = Settings()
    if settings.embedded_database:
        open_database(settings).dispose()
    else:
        upgrade_database(settings.sqlalchemy_url)
    typer.echo(f"the database has version {expected_version()}")
