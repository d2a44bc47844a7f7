"""What the webhook routes read and answer."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, StrictBool

from server.db.tables import Delivery, Webhook


class WebhookIn(BaseModel):
    model_config = ConfigDict(extra="forbid")

    url: Annotated[str, Field(min_length=1, max_length=500)]
    events: Annotated[list[Annotated[str, Field(max_length=40)]], Field(min_length=1, max_length=10)] = Field(
        description="experiment.judged, run.failed, worker.lost, trend.alert"
    )
    team: StrictBool = Field(default=False, description="Of everybody's experiments, not only your own; for admins.")


class WebhookOut(BaseModel):
    id: int
    owner: str
    url: str
    events: list[str]
    team: bool
    created_at: datetime

    @classmethod
    def of(cls, webhook: Webhook) -> WebhookOut:
        return cls(id=webhook.id, owner=webhook.owner.name, url=webhook.url, events=webhook.events, team=webhook.team,
                   created_at=webhook.created_at)  # fmt: skip


class WebhookMade(WebhookOut):
    secret: str = Field(description="Signs what is sent (HMAC-SHA256); shown this once.")


class WebhookList(BaseModel):
    items: list[WebhookOut]
    next_cursor: str | None = None


class DeliveryOut(BaseModel):
    """One delivery. ``due_at`` is null once it was delivered or given up."""

    id: int
    event: str
    payload: dict[str, Any]
    created_at: datetime
    due_at: datetime | None
    tries: int
    delivered_at: datetime | None
    status: int | None
    error: str | None

    @classmethod
    def of(cls, delivery: Delivery) -> DeliveryOut:
        return cls.model_validate({name: getattr(delivery, name) for name in cls.model_fields})


class DeliveryList(BaseModel):
    items: list[DeliveryOut]
    next_cursor: str | None = None
