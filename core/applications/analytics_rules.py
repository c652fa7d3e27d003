"""Entities, refusals and pure rules of `core.applications.analytics`."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from typing import TYPE_CHECKING, Final

from core.kernel.errors import Invalid

if TYPE_CHECKING:
    from uuid import UUID

    from core.kernel.providers import Provider

BATCH = 500  # of the latest logins, which may be asked for in any number
RANGE: Final = timedelta(days=30)  # unless both ends are given; also how far back somebody counts as new or active


class RangeBackwards(Invalid):
    """The range ends before it begins. Give an end_date that is not before the start_date; without one it is today, in UTC."""


@dataclass(frozen=True, slots=True)
class Days:
    """A range of days in UTC, both ends included."""

    first: date
    last: date


@dataclass(frozen=True, slots=True)
class LoginsOfDay:
    """How many logins there were on a day."""

    day: date
    count: int


@dataclass(frozen=True, slots=True)
class LoginsOfService:
    """How many logins to a service there were."""

    service_id: UUID
    service_name: str
    count: int


@dataclass(frozen=True, slots=True)
class LoginsOfProvider:
    """How many logins through an identity provider there were."""

    provider: Provider
    count: int


@dataclass(frozen=True, slots=True)
class RecentLogin:
    """A login. Its `provider` is an identity provider, `password` or `saml`. Times are UTC."""

    id: UUID
    user_id: UUID
    service_id: UUID
    provider: str
    created_at: datetime


@dataclass(frozen=True, slots=True)
class Use:
    """How much a service is used."""

    users: int
    new_users: int  # who began to use it lately
    active_users: int  # who signed in to it lately
    logins: int  # ever


def days(first: date | None, last: date | None, now: datetime) -> Days:
    """The range with these ends; one left out is today, or 30 days before the end (decisions, point 233). Raises RangeBackwards."""
    if last is None:
        last = now.astimezone(UTC).date()
    if first is None:
        first = last - min(RANGE, last - date.min)
    if first > last:
        raise RangeBackwards
    return Days(first, last)
