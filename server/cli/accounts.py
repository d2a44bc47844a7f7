"""``ampboard user`` and ``ampboard token``: who may do what. These work on the database itself, beside any server."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated

import typer

from server.cli.errors import CommandError
from server.cli.terminal import out, table
from server.settings import Settings

if TYPE_CHECKING:
    from sqlalchemy.orm import Session

user = typer.Typer(no_args_is_help=True)
token = typer.Typer(no_args_is_help=True)

Name = Annotated[str, typer.Argument(help="The person's name.")]
Role = Annotated[str, typer.Option(help="viewer, submitter or admin.")]


@contextmanager
def _accounts() -> Iterator[Session]:
    """A transaction on the accounts; refusals of the services become one message."""
    from server.db.upgrade import open_database
    from server.errors import Invalid, RequestError

    database = open_database(Settings())
    try:
        with database.write() as session:
            yield session
    except Invalid as error:
        faults = [f"{fault.field}={fault.value!r}: {fault.rule}: {fault.remedy}" for fault in error.faults]
        raise CommandError("\n".join(faults)) from error
    except RequestError as error:
        raise CommandError(str(error)) from error
    finally:
        database.dispose()


@user.command("add")
def add_user(
    name: Name,
    role: Role = "submitter",
    password: Annotated[
        bool, typer.Option("--password", help="Ask for a password; else they sign in by link.")
    ] = False,
) -> None:
    """Add a person, and print a one-time sign-in link for them."""
    from server.accounts import service

    secret = typer.prompt("Password", hide_input=True, confirmation_prompt=True) if password else None
    with _accounts() as session:
        added = service.create_user(session, name, role, secret)
        link = None if password else service.create_sign_in_link(session, added)
    typer.echo(f"added {name} as {role}")
    if link is not None:
        _print_link(link)


@user.command("list")
def list_users() -> None:
    """List people with their roles."""
    from sqlalchemy import select

    from server.db.tables import User

    rows = table("name", "role", "password", "state", "since")
    with _accounts() as session:
        for person in session.scalars(select(User).order_by(User.name)):
            state = "disabled" if person.disabled_at else "active"
            has_password = "yes" if person.password_hash else "no"
            rows.add_row(person.name, person.role, has_password, state, f"{person.created_at:%Y-%m-%d}")
    out().print(rows, soft_wrap=False)


@user.command("link")
def link_user(
    name: Annotated[str | None, typer.Argument(help="The person's name; else the first admin.")] = None,
) -> None:
    """Print a sign-in link that works once, within 15 minutes."""
    from server.accounts import service

    with _accounts() as session:
        if name is None:
            link = service.first_sign_in_link(session)
        else:
            link = service.create_sign_in_link(session, service.find_user(session, name))
    _print_link(link)


def _print_link(secret: str) -> None:
    from server.accounts.service import sign_in_url
    from server.client import server_url

    typer.echo(f"sign in once, within 15 minutes: {sign_in_url(server_url(Settings()), secret)}")


@user.command("disable")
def disable_user(name: Name) -> None:
    """Disable a person: their sessions end at once, their tokens stop working."""
    from server.accounts import service

    with _accounts() as session:
        service.change_user(session, service.find_user(session, name), disabled=True)
    typer.echo(f"disabled {name}")


@user.command("role")
def change_role(name: Name, role: Annotated[str, typer.Argument(help="viewer, submitter or admin.")]) -> None:
    """Give a person another role."""
    from server.accounts import service

    with _accounts() as session:
        service.change_user(session, service.find_user(session, name), role=role)
    typer.echo(f"{name} is now {role}")


@token.command("create")
def create_token(
    owner: Annotated[str, typer.Argument(help="Whose token it is.")],
    name: Annotated[str, typer.Option(help="What it is for.")] = "command line",
    role: Annotated[str | None, typer.Option(help="Cap what it may do: viewer, submitter or admin.")] = None,
) -> None:
    """Create an API token and print it; it cannot be shown again."""
    from server.accounts import service

    with _accounts() as session:
        _, secret = service.create_token(session, service.find_user(session, owner), name, role)
    typer.echo(secret)


@token.command("list")
def list_tokens() -> None:
    """List API tokens; their secrets are not stored."""
    from sqlalchemy import select

    from server.db.tables import Token

    rows = table("id", "owner", "name", "role", "begins with", "state", "last used")
    with _accounts() as session:
        for found in session.scalars(select(Token).order_by(Token.id)):
            last_used = f"{found.last_used_at:%Y-%m-%d %H:%M}" if found.last_used_at else "never"
            state = "revoked" if found.revoked_at else "active"
            rows.add_row(str(found.id), found.user.name, found.name, found.role, f"{found.prefix}…", state, last_used)
    out().print(rows, soft_wrap=False)


@token.command("revoke")
def revoke_token(number: Annotated[int, typer.Argument(help="Its id, as 'ampboard token list' shows.")]) -> None:
    """End an API token at once."""
    from server.accounts import service

    with _accounts() as session:
        service.revoke_token(session, number)
    typer.echo(f"revoked token {number}")
