"""The rules of notes, inside the caller's transaction. Experiments and runs keep their tags in their own rows."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Any, Literal

from sqlalchemy import delete, select
from sqlalchemy.exc import IntegrityError
from sqlalchemy.orm import Session

from server.access import Principal
from server.audit.service import record
from server.db.tables import Experiment, Note, Project, ProjectMember, Report, Run, User, Workload
from server.errors import Conflict, Fault, Invalid, NotFound
from server.experiments.text import check_body
from server.projects.members import check_may_submit
from server.queue.clock import store_now
from server.records.subjects import find_experiment, find_run
from server.reports.service import find as find_report
from server.runs.service import check_owner

Kind = Literal["experiment", "run", "report", "workload"]
MAX_TEXT, MAX_TAGS, MAX_TAG = 20_000, 20, 40
CHANGED = "somebody changed this note meanwhile: read theirs, and save yours over it or take it in"


def note_json(session: Session, kind: Kind, key: str) -> dict[str, Any]:
    """The note and tags of a subject. Raises `NotFound`."""
    return _json(session, kind, key, _subject(session, kind, key))


def _json(session: Session, kind: Kind, key: str, subject: Experiment | Run | Report | Workload) -> dict[str, Any]:
    note = session.get(Note, (kind, key))
    own = subject.tags if isinstance(subject, Experiment | Run) else note.tags if note is not None else []
    return {
        "kind": kind,
        "key": key,
        "text": note.text if note is not None else "",
        "tags": list(own),
        "version": note.version if note is not None else 0,
        "editor": session.get_one(User, note.editor_id).name if note is not None else None,
        "at": note.at if note is not None else None,
    }


def write(
    session: Session, principal: Principal, kind: Kind, key: str, text: str, tags: Sequence[str] | None, version: int
) -> dict[str, Any]:
    """Keep the note over ``version``, and the tags unless they are None; return both.

    Whoever may submit to a project may note on what is in it; tags of experiments and runs, which retention and lists
    go by, change only their owners and admins. Raises `NotFound`, `Forbidden`, `Invalid`, and `Conflict` when somebody
    wrote meanwhile.
    """
    subject = _subject(session, kind, key)
    project_id = _project_id(subject)
    if project_id is not None:
        check_may_submit(session, principal, session.get_one(Project, project_id))
    text, tags = _checked(text, tags)
    if isinstance(subject, Experiment | Run) and tags is not None and tags != list(subject.tags):
        check_owner(principal, _experiment(subject), "change the tags of")
    note = session.scalars(select(Note).where(Note.kind == kind, Note.key == key).with_for_update()).one_or_none()
    if (note.version if note is not None else 0) != version:
        raise Conflict(CHANGED)
    now = store_now(session)  # a query: it would flush a row that is not filled yet
    if note is None:
        note = Note(kind=kind, key=key, tags=[], text=text, version=1, editor_id=principal.user_id, at=now)
        _add_first(session, note)
    else:
        note.text, note.version, note.editor_id, note.at = text, version + 1, principal.user_id, now
    if tags is not None and isinstance(subject, Experiment | Run):
        subject.tags = tags
    elif tags is not None:
        note.tags = tags
    session.flush()
    record(session, principal.user_id, f"{kind}.note", f"{kind}/{key}", tags=tags)
    return _json(session, kind, key, subject)


def taggers(session: Session, kind: Kind, key: str) -> frozenset[int] | None:
    """Who may change its tags besides the team's admins; None: whoever may write its note. Raises `NotFound`."""
    subject = _subject(session, kind, key)
    if not isinstance(subject, Experiment | Run):
        return None
    experiment = _experiment(subject)
    admins = select(ProjectMember.user_id).where(
        ProjectMember.project_id == experiment.project_id, ProjectMember.role == "admin"
    )
    return frozenset({experiment.owner_id, *session.scalars(admins)})


def tags_by_key(session: Session, kind: Kind) -> dict[str, list[str]]:
    """The tags of every report or workload that has some."""
    rows = session.execute(select(Note.key, Note.tags).where(Note.kind == kind))
    return {key: list(tags) for key, tags in rows if tags}


def forget(session: Session, kind: Kind, keys: Iterable[object]) -> None:
    """Delete the notes of subjects that are gone: their numbers may be given again."""
    session.execute(delete(Note).where(Note.kind == kind, Note.key.in_([str(key) for key in keys])))


def _subject(session: Session, kind: Kind, key: str) -> Experiment | Run | Report | Workload:
    if kind == "workload":
        query = select(Workload).where(Workload.name == key).order_by(Workload.seen_at.desc(), Workload.id.desc())
        found = session.scalars(query.limit(1)).first()
        if found is None:
            raise NotFound(f"workload {key[:80]!r} is not here: GET /api/v1/workloads lists those that are")
        return found
    if not (key.isascii() and key.isdigit() and len(key) < 19 and key == str(int(key))):
        raise NotFound(f"{key[:40]!r} is no number of a{'n' if kind == 'experiment' else ''} {kind}")
    if kind == "report":
        return find_report(session, int(key))
    return find_experiment(session, int(key)) if kind == "experiment" else find_run(session, int(key))


def _add_first(session: Session, note: Note) -> None:
    try:
        with session.begin_nested():
            session.add(note)
    except IntegrityError:  # there was no row to lock, and somebody else's first note came before
        raise Conflict(CHANGED) from None


def _experiment(subject: Experiment | Run) -> Experiment:
    return subject.experiment if isinstance(subject, Run) else subject


def _project_id(subject: Experiment | Run | Report | Workload) -> int | None:
    if isinstance(subject, Workload):
        return None
    return subject.experiment.project_id if isinstance(subject, Run) else subject.project_id


def _checked(text: str, tags: Sequence[str] | None) -> tuple[str, list[str] | None]:
    faults = []
    if len(text) > MAX_TEXT:
        rule = f"it has {len(text)} characters"
        faults.append(Fault(field="text", value=text[:80], rule=rule, remedy=f"use at most {MAX_TEXT}"))
    for field, value in (("text", text), *(("tags", tag) for tag in tags or ())):
        try:
            check_body(value)
        except ValueError as error:
            faults.append(Fault(field=field, value=ascii(value[:80]), rule=str(error), remedy="remove it"))
    kept = None if tags is None else list(dict.fromkeys(tag.strip() for tag in tags if tag.strip()))
    broken = [tag for tag in kept or [] if re.search(r"[\t\r\n]", tag)]
    if broken:
        rule, remedy = "a tag is one line", "remove its tabs and line breaks"
        faults.append(Fault(field="tags", value=ascii(broken[0][:80]), rule=rule, remedy=remedy))
    long = [tag for tag in kept or [] if len(tag) > MAX_TAG]
    if long or len(kept or []) > MAX_TAGS:
        rule = f"a subject has at most {MAX_TAGS} tags of at most {MAX_TAG} characters"
        faults.append(
            Fault(field="tags", value=(long or kept or [""])[0][:80], rule=rule, remedy="shorten or remove some")
        )
    if faults:
        raise Invalid(faults)
    return text.replace("\r\n", "\n").strip(), kept
