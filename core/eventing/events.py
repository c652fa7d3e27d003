"""The events of the area eventing."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

if TYPE_CHECKING:
    from core.eventing.siem_rules import SiemConfiguration as SiemConfiguration
    from core.eventing.webhooks_rules import Webhook
from core.kernel.event_catalog import EVENT_KINDS, Event, field_changes


def siem_configured(configuration: SiemConfiguration) -> Event:
    """An organization's log is forwarded there from now on; or it is not, if that is not enabled."""
    details = {**_siem(configuration), "enabled": configuration.enabled}
    return Event(EVENT_KINDS["siem.configured"], str(configuration.org_id), org_id=configuration.org_id, details=details)


def siem_removed(configuration: SiemConfiguration) -> Event:
    """An organization's log is forwarded nowhere any more."""
    details = _siem(configuration)
    return Event(EVENT_KINDS["siem.removed"], str(configuration.org_id), org_id=configuration.org_id, details=details)


def _siem(configuration: SiemConfiguration) -> dict[str, Any]:
    return {"provider": configuration.provider.value, "endpoint_url": _host(configuration.endpoint_url)}


def webhook_created(webhook: Webhook) -> Event:
    """An organization has what happens told to another address."""
    details = {**_webhook(webhook), "events": list(webhook.events)}
    return Event(EVENT_KINDS["webhook.created"], str(webhook.id), org_id=webhook.org_id, details=details)


def webhook_updated(old: Webhook, new: Webhook) -> Event:
    """A webhook was changed: old and new value by the name of the field. Of the address the host is told, and whether the rest changed."""
    changes = field_changes(old, new, "name", "events", "is_active")
    if _host(old.url) != _host(new.url):
        changes["url"] = {"old": _host(old.url), "new": _host(new.url)}
    if _path(old.url) != _path(new.url):
        changes["url_path"] = {"old": "(hidden)", "new": "(hidden)"}
    return Event(EVENT_KINDS["webhook.updated"], str(new.id), org_id=new.org_id, details={**_webhook(new), "changes": changes})


def webhook_secret_rotated(webhook: Webhook) -> Event:
    """What a webhook is told is signed with another secret from now on."""
    return Event(EVENT_KINDS["webhook.secret.rotated"], str(webhook.id), org_id=webhook.org_id, details=_webhook(webhook))


def webhook_deleted(webhook: Webhook) -> Event:
    """A webhook is told nothing any more."""
    return Event(EVENT_KINDS["webhook.deleted"], str(webhook.id), org_id=webhook.org_id, details=_webhook(webhook))


def _webhook(webhook: Webhook) -> dict[str, Any]:
    return {"webhook_name": webhook.name, "url": _host(webhook.url)}


def _host(url: str) -> str:
    # Of an address that is called no more than this: the rest of it is often what opens the door there (security.md L-3).
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc}"


def _path(url: str) -> tuple[str, str]:
    # The rest of it, to be compared and never told.
    parts = urlsplit(url)
    return parts.path, parts.query
