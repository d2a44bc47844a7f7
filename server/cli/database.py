"""``ampboard db``: the database of the settings, its schema and its size."""

from __future__ import annotations

import typer

from server.settings import Settings

app = typer.Typer(no_args_is_help=True)


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


@app.command()
def vacuum() -> None:
    """Give the space of deleted runs back to the disk; readers and writers wait meanwhile."""
    from server.cli.sizes import readable
    from server.db.backup import vacuum as vacuum_database

    sizes = vacuum_database(Settings().sqlalchemy_url)
    typer.echo(f"the database took {readable(sizes.before)} and takes {readable(sizes.after)} now")
