"""Events about refused changes, webhooks and SIEM forwarding.

A URL's path and query often contain the receiver's secret, so events have only its origin (security L-3).
"""

from collections.abc import Mapping
from typing import Any
from urllib.parse import urlsplit
from uuid import UUID

from core.eventing.model.siem import SiemConfiguration
from core.eventing.model.webhooks import ClaimedLogoutNotice, Webhook
from core.kernel.errors import Refusal
from core.kernel.event_catalog import EVENT_KINDS, Event, field_changes
from core.kernel.uris import origin_of


def access_refused(org_id: UUID, method: str, route: str, arguments: Mapping[str, str], refusal: Refusal) -> Event:
    """A change was refused: the role, the service account or the API key does not allow it, or the organization has reached a limit."""
    details = {"method": method, "route": route, "arguments": dict(arguments), "error_code": refusal.code, "error": refusal.message}
    return Event(EVENT_KINDS["access.refused"], str(org_id), org_id=org_id, details=details, success=False)


def siem_configured(configuration: SiemConfiguration) -> Event:
    """The organization set or replaced its SIEM configuration."""
    details = {**_siem_details(configuration), "enabled": configuration.enabled}
    return Event(EVENT_KINDS["siem.configured"], str(configuration.org_id), org_id=configuration.org_id, details=details)


def siem_removed(configuration: SiemConfiguration) -> Event:
    """The organization removed its SIEM configuration."""
    details = _siem_details(configuration)
    return Event(EVENT_KINDS["siem.removed"], str(configuration.org_id), org_id=configuration.org_id, details=details)


def _siem_details(configuration: SiemConfiguration) -> dict[str, Any]:
    return {"provider": configuration.provider.value, "endpoint_url": origin_of(configuration.endpoint_url)}


def backchannel_logout_failed(notice: ClaimedLogoutNotice, reason: str, status: int | None) -> Event:
    """An application did not accept the notice that a user's session ended. The event has the reason.

    `reason` comes from a fixed set. `status` is the last response's status, if there was a response.
    """
    details = {"service_slug": notice.service_slug, "service_name": notice.service_name, "user_id": str(notice.user_id)}
    outcome = {"session_id": str(notice.session_id), "reason": reason, "response_status_code": status}
    kind = EVENT_KINDS["service.backchannel_logout.failed"]
    return Event(kind, str(notice.service_id), org_id=notice.org_id, details={**details, **outcome}, success=False)


def webhook_created(webhook: Webhook) -> Event:
    """A webhook was created."""
    details = {**_webhook_details(webhook), "events": list(webhook.events)}
    return Event(EVENT_KINDS["webhook.created"], str(webhook.id), org_id=webhook.org_id, details=details)


def webhook_updated(old: Webhook, new: Webhook) -> Event:
    """A webhook was changed. For every changed field, the details have the old and the new value.

    For the URL, the details have only scheme and host, and whether path or query changed.
    """
    changes = field_changes(old, new, "name", "events", "is_active")
    if origin_of(old.url) != origin_of(new.url):
        changes["url"] = {"old": origin_of(old.url), "new": origin_of(new.url)}
    if _path_and_query(old.url) != _path_and_query(new.url):
        changes["url_path"] = {"old": "(hidden)", "new": "(hidden)"}
    return Event(EVENT_KINDS["webhook.updated"], str(new.id), org_id=new.org_id, details={**_webhook_details(new), "changes": changes})


def webhook_secret_rotated(webhook: Webhook) -> Event:
    """A webhook's secret was replaced."""
    return Event(EVENT_KINDS["webhook.secret.rotated"], str(webhook.id), org_id=webhook.org_id, details=_webhook_details(webhook))


def webhook_deleted(webhook: Webhook) -> Event:
    """A webhook was deleted."""
    return Event(EVENT_KINDS["webhook.deleted"], str(webhook.id), org_id=webhook.org_id, details=_webhook_details(webhook))


def _webhook_details(webhook: Webhook) -> dict[str, Any]:
    return {"webhook_name": webhook.name, "url": origin_of(webhook.url)}


def _path_and_query(url: str) -> tuple[str, str]:
    """Return the URL after its origin, for comparisons only."""
    parts = urlsplit(url)
    return parts.path, parts.query
