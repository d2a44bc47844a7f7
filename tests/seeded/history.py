"""Writes the team's history: experiments through the submission service, runs through the store's own way in."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from sqlalchemy import select, update
from sqlalchemy.orm import Session

from seeded import team
from seeded.courses import Course, Place, benchmark, training
from seeded.questions import QUESTIONS, Question
from server.access import Principal
from server.accounts import service as accounts
from server.comparisons.service import judge_ended
from server.db.engine import Database
from server.db.tables import Attempt, Experiment, Run, User, Worker
from server.db.upgrade import open_database
from server.experiments import service
from server.experiments.schemas import ExperimentIn
from server.metrics.fold import fold
from server.metrics.write import store_frames, store_log
from server.queue.cancel import cancel_experiment
from server.queue.finish import finish
from server.settings import Settings

NUM_EXPERIMENTS, NUM_RUNS = 12, 300
STEP_S = {"cpu": 0.02, "a100": 0.006, "h200": 0.004}


@dataclass(frozen=True, kw_only=True)
class TeamHistory:
    """The database with the history in it, a one-time sign-in link of the admin, and where things are.

    ``ids`` are the experiments in the order of `seeded.questions.QUESTIONS`.
    """

    database: Database
    link: str
    ids: tuple[int, ...]
    running_run: int

    @property
    def hostile(self) -> int:
        return self.ids[1]

    @property
    def long_name(self) -> int:
        return self.ids[3]

    @property
    def non_latin(self) -> int:
        return self.ids[4]

    @property
    def fifty_curves(self) -> int:
        return self.ids[5]

    @property
    def running(self) -> int:
        return self.ids[10]

    @property
    def queued(self) -> int:
        return self.ids[11]


def write_team_history(settings: Settings) -> TeamHistory:
    """Fill the empty database of ``settings``; about ten seconds. The caller disposes of the database."""
    database = open_database(settings)
    now = datetime.now(UTC)
    with database.write() as session:
        link = accounts.first_sign_in_link(session)
        people = team.add_people(session)
        team.add_workloads(session, now)
        workers = team.add_workers(session, now)
    ids, running = [], 0
    for number, question in enumerate(QUESTIONS):
        writer = _Writer(database, settings, question, number, now)
        experiment_id = writer.submit(people[question.owner])
        ids.append(experiment_id)
        running = writer.work(experiment_id, workers[question.device]) or running
    judge_ended(database)
    with database.write() as session:
        for experiment_id, question in zip(ids, QUESTIONS, strict=True):
            _settle(session, experiment_id, question, now)
    return TeamHistory(database=database, link=link, ids=tuple(ids), running_run=running)


@dataclass(frozen=True)
class _Writer:
    """Writes one experiment."""

    database: Database
    settings: Settings
    question: Question
    number: int
    now: datetime

    @property
    def created_at(self) -> datetime:
        return self.now - timedelta(days=self.question.days_ago)

    def submit(self, owner: User) -> int:
        principal = Principal(user_id=owner.id, name=owner.name, role="admin", via="session")
        device = "cpu" if self.question.device == "cpu" else "cuda"
        body = ExperimentIn.model_validate({"device": device, **self.question.body})
        with self.database.write() as session:
            experiment, _ = service.submit(session, self.settings, body, principal)
            experiment.created_at = self.created_at
            session.execute(update(Run).where(Run.experiment_id == experiment.id).values(created_at=self.created_at))
            return experiment.id

    def work(self, experiment_id: int, worker: Worker) -> int | None:
        """Write the runs that were taken; returns the one that is still running, if any."""
        last = None
        with self.database.write() as session:
            experiment = session.get_one(Experiment, experiment_id)
            runs = session.scalars(select(Run).where(Run.experiment_id == experiment_id).order_by(Run.id)).all()
            taken = runs if self.question.until is None else runs[: self.question.until]
            at = self.created_at + timedelta(seconds=20)
            if taken:
                experiment.state = "running"
            for run in taken:
                still = self.question.until is not None and not self.question.cancelled and run is taken[-1]
                at = self._write(session, run, worker, experiment, at, still=still)
                last = run.id if still else last
            if self.question.cancelled:
                cancel_experiment(session, experiment_id, self.question.owner, now=at)
        return last

    def _write(
        self, session: Session, run: Run, worker: Worker, experiment: Experiment, at: datetime, *, still: bool
    ) -> datetime:
        """Write one run that began ``at``; returns when it ended."""
        recipe = self.question.courses.get(run.recipe_name, Course())
        course = self.question.course_of.get((run.recipe_name, run.seed), recipe)
        run.state, run.attempt, run.started_at = "running", 1, at
        run.worker_id, run.lease_expires_at = worker.id, self.now + timedelta(days=30)
        session.add(Attempt(run_id=run.id, number=1, worker_name=worker.name, started_at=at))
        session.flush()
        place = self._place(run, experiment, at)
        if run.kind == "benchmark":
            store_frames(session, run.id, 1, benchmark(run, self.question.speed, place))
            ended_at = at + timedelta(seconds=14)
            finish(session, run.id, 1, "completed", None, exit_code=0, now=ended_at)
            return ended_at
        fraction = 0.6 if still else course.until
        last_step = max(1, round(run.steps * fraction))
        store_frames(session, run.id, 1, training(run, course, place, last_step))
        store_log(session, run.id, 1, 0, f"{run.recipe_name}, seed {run.seed}\nstep {last_step} reached\n")
        ended_at = at + timedelta(seconds=last_step * place.step_s + 2)
        if still:
            fold(session, run.id, 1)
            return ended_at
        finish(session, run.id, 1, course.ends, course.reason, exit_code=int(course.ends != "completed"), now=ended_at)
        return ended_at

    def _place(self, run: Run, experiment: Experiment, at: datetime) -> Place:
        primary = experiment.plan["primary"]
        emulated = self.question.device == "cpu" and run.recipe["precision"] == "16-mixed"
        return Place(
            environment=team.environment(self.question.device, self.number),
            emulated=emulated,
            started_at=at.timestamp(),
            step_s=STEP_S[self.question.device],
            metric=primary["metric"],
            lower_is_better=not primary["higher_is_better"],
        )


def _settle(session: Session, experiment_id: int, question: Question, now: datetime) -> None:
    """Verdicts are as old as the last run, tags of runs, and what is archived."""
    experiment = session.get_one(Experiment, experiment_id)
    if experiment.judged_at is not None and experiment.ended_at is not None:
        experiment.judged_at = experiment.ended_at + timedelta(seconds=3)
    if question.archived:
        experiment.archived_at = now - timedelta(days=3)
    first = session.scalars(select(Run).where(Run.experiment_id == experiment_id).order_by(Run.id).limit(1)).one()
    first.tags = ["reference"]
