"""Saving, listing and removing views. Every function works inside the caller's transaction."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any
from urllib.parse import parse_qsl, urlencode

from sqlalchemy import or_, select
from sqlalchemy.orm import Session, joinedload

from server.access import Principal
from server.audit.service import record
from server.db.tables import View
from server.errors import Fault, Forbidden, Invalid, NotFound
from server.views.schemas import ViewIn

NOT_KEPT = frozenset({"cursor", "did", "ids", "refused"})  # a place in a list, what was just done
MAX_VIEWS = 100


def views_of(session: Session, principal: Principal, page: str | None = None) -> list[dict[str, Any]]:
    """One's own views and those shared by others, by name."""
    mine = View.owner_id == principal.user_id
    query = select(View).where(or_(mine, View.shared)).options(joinedload(View.owner)).order_by(View.name, View.id)
    if page is not None:
        query = query.where(View.page == page)
    return [view_json(view, principal) for view in session.scalars(query)]


def view_json(view: View, principal: Principal) -> dict[str, Any]:
    """A view as REST and pages show it."""
    return {
        "id": view.id,
        "page": view.page,
        "name": view.name,
        "query": view.query,
        "shared": view.shared,
        "owner": view.owner.name,
        "mine": view.owner_id == principal.user_id,
        "url": f"/{view.page}?{view.query}" if view.query else f"/{view.page}",
        "created_at": view.created_at,
    }


def save(session: Session, given: ViewIn, principal: Principal) -> View:
    """Save a view, in the place of one's own of that name. Raises `Invalid`, and `Forbidden` for a viewer's sharing."""
    name = given.name.strip()
    if not name:
        raise Invalid([Fault(field="name", value=given.name, rule="a view needs a name", remedy="write one")])
    if given.shared and not principal.may("submitter"):
        raise Forbidden("sharing a view with the team needs the role submitter: save it for yourself")
    mine = select(View).where(View.owner_id == principal.user_id)
    view = session.scalars(mine.where(View.page == given.page, View.name == name)).one_or_none()
    if view is None:
        if len(session.scalars(mine).all()) >= MAX_VIEWS:
            fault = Fault(field="name", value=name, rule=f"{MAX_VIEWS} views are the most", remedy="delete one first")
            raise Invalid([fault])
        view = View(owner_id=principal.user_id, page=given.page, name=name, created_at=datetime.now(UTC))
        session.add(view)
    view.query, view.shared = kept_query(given.query), given.shared
    session.flush()
    record(session, principal.user_id, "view.save", f"view/{view.id}", name=name, shared=given.shared)
    return view


def kept_query(query: str) -> str:
    """The part of an address that is the view: no place in a list, no message, no empty field."""
    pairs = parse_qsl(query.removeprefix("?"), keep_blank_values=False)
    return urlencode([(name, value) for name, value in pairs if name not in NOT_KEPT])


def remove(session: Session, view_id: int, principal: Principal) -> View:
    """Delete a view: one's own, or a shared one as an admin. Raises `NotFound`, `Forbidden`."""
    view = session.get(View, view_id)
    if view is None or (not view.shared and view.owner_id != principal.user_id):
        raise NotFound(f"view {view_id} does not exist")
    if view.owner_id != principal.user_id and not principal.may("admin"):
        raise Forbidden(f"view {view_id} belongs to {view.owner.name}: only they or an admin may delete it")
    session.delete(view)
    record(session, principal.user_id, "view.delete", f"view/{view_id}", name=view.name)
    return view
