"""Storage for service users, their assignments, and figures about them."""

from collections.abc import Awaitable, Collection, Mapping, Sequence
from datetime import date, datetime
from typing import Protocol
from uuid import UUID

from core.accounts.model.protection import NOTHING_ASKED, AskedStrength
from core.applications.model import analytics, figures, users
from core.kernel import values
from core.tenancy.model.groups import AssignedGroup


class ServiceUsersRead(Protocol):
    """Read access to a service's users, as its API keys see them."""

    async def page(self, org_id: UUID, service_id: UUID, limit: int, offset: int) -> values.PageResult[users.ServiceUser]:
        """Return a page with the service's users. The earliest users come first."""

    async def by_id(self, org_id: UUID, service_id: UUID, user_id: UUID) -> users.ServiceUser | None: ...

    async def emails(self, org_id: UUID, service_id: UUID, user_ids: Collection[UUID]) -> Mapping[UUID, values.Email]:
        """Return the addresses of these accounts, if they are users of the service."""


class ServiceUsers(ServiceUsersRead, Protocol):
    """Write access to service users. Callers lock the account before calling any method. All methods maintain the counters."""

    async def remove(self, org_id: UUID, service_id: UUID, user_id: UUID) -> None:
        """Remove a user from a service, with their identities, subscriptions and roles there."""

    async def remove_former_members(self, org_id: UUID, user_ids: Collection[UUID]) -> None:
        """Remove former members from services that they used only as members, and end their other assignments.

        Other assignments are assignments to services, to API resources, and to service roles. Users with a subscription to the service
        stay, because the subscription belongs to them. The method runs two statements.
        """

    async def remove_everywhere(self, user_id: UUID) -> None:
        """Remove a user from all services, also in deleted organizations."""


class AssignmentsRead(Protocol):
    """Read access to the users' assignments to services."""

    async def page(
        self, org_id: UUID, service_id: UUID, page: values.Page, *, search: str | None = None
    ) -> values.PageResult[users.Assignment]:
        """Return a page with the users that are assigned to the service, in the order in which they came to it.

        `search` is a lower-case part of an email address.
        """

    async def origins(self, org_id: UUID, service_id: UUID, user_ids: Collection[UUID]) -> dict[UUID, users.EnrollmentOrigin]:
        """Return how these users came to the service. Users who do not use the service are left out."""

    async def assignable(self, org_id: UUID, user_ids: Collection[UUID]) -> set[UUID]:
        """Return which of these users are end users or confirmed members of the organization. Anonymized users are left out."""

    async def by_directory(self, org_id: UUID, service_id: UUID, user_ids: Collection[UUID] | None) -> set[UUID]:
        """Return which of these users the directory assigned to the service. `user_ids` of None means all users."""

    async def all_by_directory(self, org_id: UUID, user_ids: Collection[UUID]) -> dict[UUID, set[UUID]]:
        """Return which of these users the directory assigned to services in the organization, by service id."""

    async def without_directory(self, org_id: UUID, service_ids: Collection[UUID]) -> set[UUID]:
        """Return which of these services have no user from the directory."""

    async def page_by_directory(self, org_id: UUID, service_id: UUID, after: UUID | None, limit: int) -> list[UUID]:
        """Return the next ids, in order, for users that the directory assigned to the service."""

    async def groups(self, org_id: UUID, service_id: UUID) -> list[AssignedGroup]:
        """Return the groups that are assigned to the service, by name."""

    async def services_of_group(self, org_id: UUID, group_id: UUID) -> list[UUID]:
        """Return the ids of services that the group is assigned to, by service name."""


class Assignments(AssignmentsRead, Protocol):
    """Write access to the users' assignments to services.

    Callers lock the accounts before changing user assignments, and the organization before changing group assignments.
    """

    async def add(self, org_id: UUID, service_id: UUID, user_ids: Collection[UUID], origin: users.EnrollmentOrigin, now: datetime) -> bool:
        """Make the users end users without a sign-in at the service. This origin replaces a weaker origin from an earlier enrollment.

        A member who is new to the service loses it when the membership ends. Return False if the service does not exist
        or is being deleted.
        """

    async def end(self, org_id: UUID, service_id: UUID, user_ids: Collection[UUID]) -> None:
        """End the users' assignments. The users remain end users at the service, as if they had enrolled themselves."""

    async def add_group(self, org_id: UUID, service_id: UUID, group_id: UUID, now: datetime) -> bool:
        """Assign the group. Return False if the group is assigned already."""

    async def remove_group(self, org_id: UUID, service_id: UUID, group_id: UUID) -> bool:
        """End the group's assignment. Return False if the group was not assigned."""

    async def remove_unused(self, org_id: UUID, service_id: UUID, user_ids: Collection[UUID]) -> None:
        """Remove these users from the service if they are unassigned, never signed in and have no subscription."""


class EndUsersRead(Protocol):
    """Read access to an organization's end users. This access covers only the organization's data (security T-3).

    `services_with_refused_users` is for the operator, and reads all organizations.
    """

    async def page(
        self,
        org_id: UUID,
        page: values.Page,
        *,
        search: str | None = None,
        service_id: UUID | None = None,
        blocked: bool = False,
        asked: AskedStrength = NOTHING_ASKED,
    ) -> values.PageResult[users.EndUserSummary]:
        """Return a page with end users, latest first, optionally for a single service.

        `search` is a lower-case part of an email address. Users with a deactivated account, and users that the
        organization's directory blocks, are left out. Latest means that the user started last to use the service, or
        any service in the organization.

        With `blocked`, return the users that the organization's admins blocked, last block first. Users who have left
        the services are included, with their address at the time of the block.
        """

    async def by_id(self, org_id: UUID, user_id: UUID, asked: AskedStrength = NOTHING_ASKED) -> users.EndUser | None:
        """Return an end user. `asked` is the strength against which `EndUser.protection` is told."""

    async def exists(self, org_id: UUID, user_id: UUID) -> bool: ...
    async def is_blockable(self, org_id: UUID, user_id: UUID) -> bool:
        """Return whether the user is an end user, a member or a former member in the organization."""

    async def open_to_former_members(self, org_id: UUID, user_ids: Collection[UUID], now: datetime) -> list[str]:
        """Return the names of the services that one of these users may use without a membership, sorted.

        Assignments and groups end with a membership, so they do not count.
        """

    async def used_before_membership(self, org_id: UUID, user_ids: Collection[UUID]) -> set[UUID]:
        """Return which of these members were end users before they became members."""

    async def blocked_by_admin(self, org_id: UUID, user_ids: Collection[UUID]) -> set[UUID]:
        """Return which of these users an admin in the organization blocks."""

    async def blocked_at(self, org_id: UUID, user_id: UUID) -> datetime | None:
        """Return when an admin in the organization blocked the user, or None."""

    async def address(self, org_id: UUID, user_id: UUID) -> values.Email | None:
        """Return an end user's address, or a blocked user's address at the time of the block, or None."""

    async def services(self, org_id: UUID, user_id: UUID) -> list[users.UsedService]: ...
    async def identities(self, org_id: UUID, user_id: UUID) -> list[users.LinkedIdentity]: ...

    async def may_use(self, org_id: UUID, service_id: UUID, user_id: UUID, now: datetime) -> bool | None:
        """Return whether the user may use the service, or None if there is no such service."""

    async def may_sign_on(self, org_id: UUID, service_id: UUID, user_id: UUID, now: datetime) -> bool | None:
        """Return whether the user may use the service with SAML, or None if there is no such service."""

    async def services_with_refused_users(self, limit: int, now: datetime) -> list[tuple[str, str]]:
        """Return the services that admit anyone, while SAML refuses some users: the slugs of organization and service.

        The query reads all users at these services.
        """

    async def is_known(self, org_id: UUID, user_id: UUID) -> bool:
        """Return whether the user is an end user or a confirmed member in the organization."""

    async def is_confirmed_member(self, org_id: UUID, user_id: UUID) -> bool: ...


class EndUsers(EndUsersRead, Protocol):
    """Write access to an organization's end users. Callers lock the account before calling any method but `unblock`.

    The methods that enroll maintain the counters. The methods return None if the service does not exist or is being
    deleted, or if the user may not use it (`core.authentication.service_access`). Otherwise, a deletion of the service
    waits until the transaction ends.
    """

    async def block(self, org_id: UUID, user_id: UUID, now: datetime) -> bool:
        """Refuse an end user, a member or a former member at all the organization's services. Return false if they are blocked already.

        A block that began with a change of the user's address begins anew, so that `unblock_undone` does not end it.
        """

    async def unblock(self, org_id: UUID, user_id: UUID) -> bool:
        """End the user's block, and return whether the user was blocked."""

    async def unblock_undone(self, user_id: UUID, now: datetime) -> list[UUID]:
        """End the blocks that began with an address change which was undone `now`, and return their organizations."""

    def enroll(self, service_id: UUID, user_id: UUID, now: datetime) -> Awaitable[bool]:
        """Make a user who is signing in an end user at the service, independent of any membership.

        Return False if the service refuses the user, or is being deleted.
        """

    def enroll_by_saml(self, org_slug: str, service_slug: str, user_id: UUID, now: datetime) -> Awaitable[bool]:
        """Enroll a user who is signing in with SAML to the service with this slug, as `enroll` does.

        A member who is new to the service uses it as a member, and loses it when the membership ends.
        """


class OwnApplications(Protocol):
    """The users' applications, in all organizations."""

    async def of_user(self, user_id: UUID, limit: int, now: datetime, *, org_id: UUID | None = None) -> list[users.OwnApplication]:
        """Return the applications that the user may use and knows: by use, by assignment, or by a confirmed membership in the organization.

        The applications are ordered by organization and name.
        """


class AnalyticsRead(Protocol):
    """Successful logins to an organization's existing services, by day in UTC.

    A `service_id` of None means all services and the members' logins to the platform.
    """

    async def by_day(self, org_id: UUID, service_id: UUID | None, days: analytics.DateRange) -> list[analytics.DailyLogins]:
        """Return how many logins there were per day, earliest first, without days that had none."""

    async def by_service(self, org_id: UUID, days: analytics.DateRange) -> list[analytics.ServiceLogins]:
        """Return how many logins there were per service, highest first, without services that had none."""

    async def by_provider(self, org_id: UUID, service_id: UUID | None, days: analytics.DateRange) -> list[analytics.ProviderLogins]:
        """Return how many logins there were per identity provider, highest first, without providers that had none."""

    async def recent(self, org_id: UUID, before: analytics.RecentLogin | None, limit: int) -> list[analytics.RecentLogin]:
        """Return the latest logins, or the logins just before `before`, newest first."""

    async def usage(self, org_id: UUID, service_id: UUID, since: datetime) -> analytics.ServiceUsage:
        """Return a service's figures. Users are new or active if they joined or signed in since `since`."""


class OverviewRead(Protocol):
    """The figures on an organization's overview."""

    async def figures(self, org_id: UUID, now: datetime) -> analytics.OrganizationFigures:
        """Return how many members, services and pending tasks there are. The numbers are 0 if the organization does not exist."""


class FiguresRead(Protocol):
    """The figures of an organization, or with an `org_id` of None the platform's figures.

    Successful sign-ins by day are the totals that `AnalyticsRead` reads.
    """

    async def by_result(self, org_id: UUID | None, period: figures.FigurePeriod) -> dict[str, list[int]]:
        """Return the sign-ins by SUCCESS and by failure reason."""

    async def by_method(self, org_id: UUID | None, period: figures.FigurePeriod) -> dict[str, list[int]]:
        """Return the successful sign-ins by method, the most frequent first."""

    async def by_application(self, org_id: UUID, period: figures.FigurePeriod, most: int) -> list[figures.ApplicationSignIns]:
        """Return the successful sign-ins by application: the `most` frequent applications first, then the rest together."""

    async def users(self, org_id: UUID | None, period: figures.FigurePeriod) -> tuple[list[int], list[int]]:
        """Return how many users were active and how many were new."""

    async def weekly_users(self, org_id: UUID | None, weeks: Sequence[datetime]) -> list[figures.WeeklyUsers]:
        """Return how many users were active per week, by the start of its Monday."""

    async def populations(self, org_id: UUID | None, since: date) -> list[figures.Population]:
        """Return how many users there were, and how many had a second factor, for every counted day."""

    async def traffic(self, org_id: UUID | None, kind: figures.TrafficKind, period: figures.FigurePeriod) -> list[figures.TrafficCount]: ...


class FigureCounting(Protocol):
    """Counting figures from the records. Callers have the lease: only a single process counts.

    A statement that counts may take ten minutes, and needs a transaction.
    """

    async def next_hour(self, since: datetime, now: datetime) -> datetime:
        """Return the first hour since `since` that is not final and has sign-ins, or else the hour that contains `now`."""

    async def count_hour(self, hour: datetime) -> None:
        """Count an hour's sign-ins and users again, and then the figures for its day. Runs nine statements."""

    async def mark_final(self, until: datetime) -> None:
        """Record that the hours before `until` are final."""

    async def sum_traffic(self, since: datetime) -> None:
        """Sum all organizations' traffic for the platform, from the hour and the day that contain `since`. Runs three statements."""

    async def count_populations(self, now: datetime) -> None:
        """Count the users and their second factors for today, unless this was done in the present hour."""

    async def remove(self, hours_before: datetime, days_before: datetime, limit: int) -> int:
        """Delete up to `limit` old rows per table, and return how many."""
