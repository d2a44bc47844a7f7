"""The table of kept checkpoints; the files lie with workers, or in the store that workers share."""

from __future__ import annotations

from datetime import datetime

from sqlalchemy import BigInteger, ForeignKey, Integer, String, UniqueConstraint, false
from sqlalchemy.orm import Mapped, mapped_column

from server.db.base import Base, Id


class Checkpoint(Base):
    """A checkpoint that stays after its run's end. Without its row a worker deletes the file.

    ``name`` is the file's, with its checksum; it lies with the worker of that name, and in the shared store as well
    once ``is_shared``.
    """

    __tablename__ = "checkpoints"
    id: Mapped[int] = mapped_column(Id, primary_key=True)
    run_id: Mapped[int] = mapped_column(ForeignKey("runs.id", ondelete="CASCADE"))
    step: Mapped[int] = mapped_column(BigInteger)
    attempt: Mapped[int] = mapped_column(Integer)
    name: Mapped[str] = mapped_column(String(80))
    num_bytes: Mapped[int] = mapped_column(BigInteger)
    worker_name: Mapped[str] = mapped_column(String(200))
    is_shared: Mapped[bool] = mapped_column(default=False, server_default=false())
    created_at: Mapped[datetime]
    __table_args__ = (UniqueConstraint("run_id", "step", name="uq_checkpoints_step"),)
