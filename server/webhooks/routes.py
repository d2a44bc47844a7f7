"""Webhooks over REST."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Depends, Query, status

from server.access import Principal, submitter
from server.paging import MAX_LIMIT
from server.records.subjects import Id
from server.state import DatabaseOf, SettingsOf
from server.webhooks import service
from server.webhooks.schemas import DeliveryList, DeliveryOut, WebhookIn, WebhookList, WebhookMade, WebhookOut

router = APIRouter(prefix="/api/v1", tags=["webhooks"])
Submitter = Annotated[Principal, Depends(submitter)]


@router.get("/webhooks")
def list_webhooks(principal: Submitter, database: DatabaseOf) -> WebhookList:
    """Your webhooks; for an admin everybody's."""
    with database.read() as session:
        return WebhookList(items=[WebhookOut.of(webhook) for webhook in service.list_webhooks(session, principal)])


@router.post("/webhooks", status_code=status.HTTP_201_CREATED)
def create_webhook(body: WebhookIn, principal: Submitter, database: DatabaseOf, settings: SettingsOf) -> WebhookMade:
    """Have an address told of verdicts, failed runs or lost workers. The answer holds the secret, this once."""
    with database.write() as session:
        webhook = service.create(session, settings, principal, body.url, body.events, team=body.team)
        return WebhookMade(**WebhookOut.of(webhook).model_dump(), secret=webhook.secret)


@router.delete("/webhooks/{webhook_id}", status_code=status.HTTP_204_NO_CONTENT)
def delete_webhook(webhook_id: Id, principal: Submitter, database: DatabaseOf) -> None:
    """Delete a webhook; what it was not told yet it never is."""
    with database.write() as session:
        service.remove(session, webhook_id, principal)


@router.post("/webhooks/{webhook_id}/ping", status_code=status.HTTP_202_ACCEPTED)
def ping_webhook(webhook_id: Id, principal: Submitter, database: DatabaseOf) -> DeliveryOut:
    """Send it a greeting, to see that it arrives; its deliveries say whether it did."""
    with database.write() as session:
        return DeliveryOut.of(service.ping(session, webhook_id, principal))


@router.get("/webhooks/{webhook_id}/deliveries")
def show_deliveries(
    webhook_id: Id, principal: Submitter, database: DatabaseOf, limit: Annotated[int, Query(ge=1, le=MAX_LIMIT)] = 50
) -> DeliveryList:
    """What it was told lately, newest first, and what it answered."""
    with database.read() as session:
        found = service.deliveries(session, webhook_id, principal, limit)
        return DeliveryList(items=[DeliveryOut.of(delivery) for delivery in found])
