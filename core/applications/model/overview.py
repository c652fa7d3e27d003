"""The overview of an organization: its figures, and the tasks that wait for its admins."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from types import MappingProxyType
from typing import Final

from core.applications.model.analytics import DailyLogins, DateRange
from core.kernel.principals import Capability, Role, has_capability

DAYS: Final = 30  # of the sign-ins, with today
MOST_COUNTED: Final = 100  # of one task
# The number of newest deliveries of a webhook among which the last attempt is searched.
DELIVERIES_CHECKED: Final = 20


class PendingTask(StrEnum):
    """A state that an admin should change. The most urgent ones come first."""

    CERTIFICATES_EXPIRING = "certificates_expiring"
    WEBHOOKS_FAILING = "webhooks_failing"
    SIEM_FAILING = "siem_failing"
    SIEM_PAUSED = "siem_paused"
    DOMAIN_UNVERIFIED = "domain_unverified"
    ADMINS_WITHOUT_MFA = "admins_without_mfa"
    INVITATIONS_PENDING = "invitations_pending"


# The capability that the next step of a task requires. Other roles do not see the task.
CAPABILITIES: Final[Mapping[PendingTask, Capability]] = MappingProxyType(
    {
        PendingTask.DOMAIN_UNVERIFIED: Capability.INTEGRATIONS_MANAGE,
        PendingTask.INVITATIONS_PENDING: Capability.MEMBERS_MANAGE,
        PendingTask.ADMINS_WITHOUT_MFA: Capability.MEMBERS_MANAGE,
        PendingTask.CERTIFICATES_EXPIRING: Capability.INTEGRATIONS_MANAGE,
        PendingTask.WEBHOOKS_FAILING: Capability.WEBHOOKS_MANAGE,
        PendingTask.SIEM_PAUSED: Capability.INTEGRATIONS_MANAGE,
        PendingTask.SIEM_FAILING: Capability.INTEGRATIONS_MANAGE,
    }
)


@dataclass(frozen=True, slots=True)
class OrganizationFigures:
    """The numbers of members, services, and objects with a pending task. A task without objects is left out."""

    members: int
    services: int
    tasks: Mapping[PendingTask, int]  # counted up to MOST_COUNTED


@dataclass(frozen=True, slots=True)
class Overview:
    """The overview of an organization, as one of its members may see it."""

    members: int
    services: int
    sign_ins: Sequence[DailyLogins]  # one for each of the last DAYS days, earliest first
    tasks: Mapping[PendingTask, int]  # in the order of PendingTask


def compute_days(now: datetime) -> DateRange:
    """Return the days whose sign-ins the overview shows. The last one is today (UTC)."""
    today = now.astimezone(UTC).date()
    return DateRange(today - timedelta(days=DAYS - 1), today)


def select_tasks(tasks: Mapping[PendingTask, int], role: Role) -> dict[PendingTask, int]:
    """Return the tasks that this role can do, in the order of PendingTask."""
    return {task: tasks[task] for task in PendingTask if task in tasks and has_capability(role, CAPABILITIES[task])}
