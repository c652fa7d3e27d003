"""Logout notices: the back-channel logout of OpenID Connect (Back-Channel Logout 1.0)."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from types import MappingProxyType
from typing import Final
from urllib.parse import urlencode
from uuid import UUID

from core.eventing.model.webhooks import DeliveryFailure, DeliveryOutcome, LeasedDelivery, failed_outcome
from core.kernel.outbound import Reply
from core.kernel.policy import Policy

LOGOUT_TOKEN_TTL: Final = timedelta(minutes=2)  # the longest life that section 2.4 recommends
HEADERS: Final[Mapping[str, str]] = MappingProxyType({"Content-Type": "application/x-www-form-urlencoded", "Cache-Control": "no-store"})
ACCEPTED: Final = (200, 204)  # section 2.8
REFUSED: Final = 400  # the application could not log the user out, and would not the next time either


@dataclass(frozen=True, slots=True, kw_only=True)
class ClaimedLogoutNotice(LeasedDelivery):
    """A notice about a session that ended, leased to this process."""

    service_id: UUID
    service_slug: str
    service_name: str
    client_id: UUID
    user_id: UUID
    session_id: UUID

    @property
    def receiver_id(self) -> UUID:
        return self.service_id


def request_body(logout_token: str) -> bytes:
    """Return the body of the request to the application (section 2.5)."""
    return urlencode({"logout_token": logout_token}).encode()


def answered_outcome(
    policy: Policy, notice: ClaimedLogoutNotice, reply: Reply, now: datetime, spread: float
) -> DeliveryOutcome[ClaimedLogoutNotice]:
    """Return the outcome of an attempt that got a response. 400 is final."""
    if reply.status in ACCEPTED:
        return DeliveryOutcome(delivery=notice, at=now, status=reply.status)
    outcome = replace(failed_outcome(policy, notice, DeliveryFailure.NOT_ACCEPTED, now, spread), status=reply.status)
    return replace(outcome, next_retry_at=None) if reply.status == REFUSED else outcome
