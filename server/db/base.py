"""What every table is built on: the metadata with its naming rules, UTC datetimes, and ids that count up."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from sqlalchemy import JSON, BigInteger, DateTime, Integer, LargeBinary, MetaData, Table, TypeDecorator
from sqlalchemy.engine import Dialect
from sqlalchemy.orm import DeclarativeBase


class UtcDateTime(TypeDecorator[datetime]):
    """Aware UTC datetimes on every database; SQLite stores none of its own, so they are kept naive in UTC there."""

    impl = DateTime(timezone=True)
    cache_ok = True

    def process_bind_param(self, value: datetime | None, dialect: Dialect) -> datetime | None:
        if value is None:
            return None
        assert value.tzinfo is not None, "datetimes are aware"
        value = value.astimezone(UTC)
        return value.replace(tzinfo=None) if dialect.name == "sqlite" else value

    def process_result_value(self, value: datetime | None, dialect: Dialect) -> datetime | None:  # noqa: ARG002 - SQLAlchemy passes it
        if value is None:
            return None
        return value.replace(tzinfo=UTC) if value.tzinfo is None else value.astimezone(UTC)


Id = BigInteger().with_variant(Integer, "sqlite")  # SQLite autoincrements INTEGER primary keys only


class Base(DeclarativeBase):
    metadata = MetaData(
        naming_convention={
            "ix": "ix_%(column_0_label)s",
            "uq": "uq_%(table_name)s_%(column_0_name)s",
            "fk": "fk_%(table_name)s_%(column_0_name)s",
            "pk": "pk_%(table_name)s",
        }
    )
    _json = JSON(none_as_null=True)  # None is SQL NULL, so that a query can ask for it
    type_annotation_map = {datetime: UtcDateTime, dict[str, Any]: _json, list[Any]: _json, bytes: LargeBinary}  # noqa: RUF012 - SQLAlchemy's own form


def table_of(entity: type[Base]) -> Table:
    """The table of a mapped class, for statements that are run often and need no objects."""
    table = entity.__table__
    assert isinstance(table, Table)
    return table
