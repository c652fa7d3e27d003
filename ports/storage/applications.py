"""Storage of services and plans, API keys, service users, end users and login analytics.

The module is longer than 400 lines because each area has one storage module (docs/adr/0018).
"""

from collections.abc import Collection, Mapping, Sequence
from datetime import datetime
from typing import Protocol
from uuid import UUID

from core.applications.model.analytics import (
    DailyLogins,
    DateRange,
    OrganizationFigures,
    ProviderLogins,
    RecentLogin,
    ServiceLogins,
    ServiceUsage,
)
from core.applications.model.api_keys import ApiKey, ApiKeyRecord
from core.applications.model.plans import Plan
from core.applications.model.services import Service, ServiceOrder, ServiceSummary, ServiceType
from core.applications.model.users import (
    AccessPolicy,
    Assignment,
    EndUser,
    EndUserSummary,
    EnrollmentOrigin,
    LinkedIdentity,
    OwnApplication,
    ServiceUser,
    UsedService,
)
from core.billing.model.subscriptions import Entitlement
from core.kernel.callers import ServiceContext
from core.kernel.deferred import Deferred
from core.kernel.rate_limits import Bucket
from core.kernel.values import Email, Page, PageResult


class ServicesRead(Protocol):
    """Read access to services. A `ServiceContext` includes the organization and its status, which may be inactive."""

    async def by_slug(self, org_id: UUID, slug: str) -> Service | None: ...
    async def by_id(self, org_id: UUID, service_id: UUID) -> Service | None: ...
    async def context_by_id(self, service_id: UUID) -> ServiceContext | None: ...
    async def context_by_slug(self, org_slug: str, slug: str) -> ServiceContext | None: ...

    async def client_by_slug(self, org_slug: str, slug: str) -> tuple[Service, ServiceContext] | None: ...
    async def by_client_id(self, client_id: UUID) -> tuple[Service, ServiceContext] | None: ...

    async def list_after(
        self,
        org_id: UUID,
        service_type: ServiceType | None,
        after: Service | None,
        limit: int,
        offset: int,
        *,
        search: str | None = None,
        order: ServiceOrder = ServiceOrder.CREATED,
    ) -> list[ServiceSummary]:
        """Return the services of this type that come after `after` in this order.

        `search` is a part of the name or slug in lower case. A `service_type` of None means all types. An
        `after` of None means the start of the list.
        """
        ...

    async def with_policy(self, org_id: UUID, policy: AccessPolicy) -> list[Service]:
        """Return the services with this policy, oldest first."""
        ...

    async def count(self, org_id: UUID) -> int: ...


class ClientCharges(Protocol):
    """The rate limits of OAuth clients."""

    async def charge_client(
        self, client_id: UUID, secret_hashes: Sequence[bytes], buckets: tuple[Bucket, ...], now: datetime
    ) -> tuple[Service, ServiceContext, float | None] | None:
        """Return the client, and take a token from each of its buckets if one of these is the hash of its secret.

        The former secret counts until it expires. The last value is the wait in seconds, as in
        `Rates.charge`, or None if the secret is wrong.
        """
        ...


class Services(ServicesRead, Protocol):
    """Write access to services. Callers lock the organization before calling any method."""

    async def add(self, service: Service) -> None:
        """Add a service. Raises: ServiceSlugTaken."""
        ...

    async def save(self, service: Service) -> None:
        """Save all fields of a service that can change, except the counters."""
        ...

    async def delete(self, org_id: UUID, service_id: UUID, now: datetime) -> None:
        """Delete the service and the rows that cascade from it.

        This waits for sign-ins to the service that are in progress. Later sign-ins do not find the
        service. Sweep.DELETED_SERVICES deletes its logins later.
        """
        ...

    def context_and_entitlement_deferred(
        self, service_id: UUID, user_id: UUID, now: datetime
    ) -> Deferred[tuple[ServiceContext, Entitlement]]:
        """Return the service and the plan that this user has there. The result is available after the next statement. It needs no lock."""
        ...

    async def lock_users(self, org_id: UUID, service_id: UUID, after: UUID | None, limit: int) -> UUID | None:
        """Lock the next users of a deleted service, in the order of their ids. Return the last id, or None if no users are left.

        This also locks the end user rows of users who use no other service of the organization. So
        they cannot start to use another one before their rows are removed.
        """
        ...

    async def remove_users(self, org_id: UUID, service_id: UUID, after: UUID | None, until: UUID) -> int:
        """Remove the users that `lock_users` locked. Return the number of them that are no longer end users of the organization."""
        ...

    async def remove_totals(self, org_id: UUID, service_id: UUID, end_users: int) -> None:
        """Remove the login totals of a deleted service, and subtract `end_users` from the organization's number of end users."""
        ...

    async def purge(self, service_id: UUID, limit: int) -> None:
        """Delete at most `limit` logins to a deleted service."""
        ...


class PlansRead(Protocol):
    """Read access to plans, without deleted plans."""

    async def by_id(self, org_id: UUID, service_id: UUID, plan_id: UUID) -> Plan | None: ...

    async def service_id_of(self, org_id: UUID, plan_id: UUID) -> UUID | None:
        """Return the id of the service that has this plan, or None if the organization has no such plan."""
        ...

    async def list_after(self, org_id: UUID, service_id: UUID, after: Plan | None, limit: int) -> list[Plan]:
        """Return the service's plans that come after `after`, oldest first. None means the start of the list."""
        ...


class Plans(PlansRead, Protocol):
    """Write access to plans. Callers lock the organization before calling any method."""

    async def add(self, plan: Plan) -> None: ...

    async def save(self, plan: Plan) -> None:
        """Save all fields of a plan that can change."""
        ...

    async def remove(self, org_id: UUID, plan_id: UUID, now: datetime) -> None:
        """Mark a plan as deleted. Ended subscriptions still refer to it."""
        ...


class ApiKeysRead(Protocol):
    """Read access to API keys, which are stored as SHA-256."""

    async def by_hash(self, key_hash: bytes, now: datetime) -> ApiKeyRecord | None:
        """Return everything needed to authenticate a request with this key, or None if it is unknown or expired."""
        ...

    async def is_live(self, service_id: UUID, key_id: UUID, now: datetime) -> bool:
        """Return whether the service has this key and it has not expired."""
        ...

    async def page(self, org_id: UUID, service_id: UUID, limit: int, offset: int) -> PageResult[ApiKey]:
        """Return a page of the service's keys, newest first, including expired keys."""
        ...

    async def by_id(self, org_id: UUID, service_id: UUID, key_id: UUID) -> ApiKey | None: ...


class ApiKeys(ApiKeysRead, Protocol):
    """Write access to API keys. Callers lock the organization before calling any method."""

    async def add(self, key: ApiKey, key_hash: bytes) -> None: ...
    async def remove(self, org_id: UUID, service_id: UUID, key_id: UUID) -> None: ...


class ApiKeyUse(Protocol):
    """The time of the last use of API keys."""

    async def record_use(self, key_id: UUID, now: datetime, before: datetime) -> None:
        """Store that the key was used now, unless a use after `before` is stored already."""
        ...


class ServiceUsersRead(Protocol):
    """Read access to the users of a service, as its API keys see them."""

    async def page(self, org_id: UUID, service_id: UUID, limit: int, offset: int) -> PageResult[ServiceUser]:
        """Return a page of the service's users. The earliest users come first."""
        ...

    async def by_id(self, org_id: UUID, service_id: UUID, user_id: UUID) -> ServiceUser | None: ...

    async def emails(self, org_id: UUID, service_id: UUID, user_ids: Collection[UUID]) -> Mapping[UUID, Email]:
        """Return the addresses of those of these accounts that are users of the service."""
        ...


class ServiceUsers(ServiceUsersRead, Protocol):
    """Write access to the users of services. Callers lock the account before calling any method. All methods maintain the counters."""

    async def remove(self, org_id: UUID, service_id: UUID, user_id: UUID) -> None:
        """Remove a user from a service, with their identities and subscriptions there."""
        ...

    async def remove_former_members(self, org_id: UUID, user_ids: Collection[UUID]) -> None:
        """Remove former members of the organization from services that they used only as members, and end their other assignments.

        These are assignments to services and to API resources. Users with a subscription to the service
        stay, because the subscription belongs to them. This is two statements.
        """
        ...

    async def remove_everywhere(self, user_id: UUID) -> None:
        """Remove a user from all services, including those of deleted organizations."""
        ...


class AssignmentsRead(Protocol):
    """Read access to the assignments of users to services."""

    async def page(self, org_id: UUID, service_id: UUID, page: Page, *, search: str | None = None) -> PageResult[Assignment]:
        """Return a page of the users that are assigned to the service, in the order in which they came to it.

        `search` is a part of an email address in lower case.
        """
        ...

    async def origins(self, org_id: UUID, service_id: UUID, user_ids: Collection[UUID]) -> dict[UUID, EnrollmentOrigin]:
        """Return how these users came to the service. Users who do not use it are left out."""
        ...

    async def assignable(self, org_id: UUID, user_ids: Collection[UUID]) -> set[UUID]:
        """Return those of these users that are end users or confirmed members of the organization."""
        ...

    async def by_directory(self, org_id: UUID, service_id: UUID, user_ids: Collection[UUID] | None) -> set[UUID]:
        """Return those of these users that the directory assigned to the service. None means all users."""
        ...

    async def all_by_directory(self, org_id: UUID, user_ids: Collection[UUID]) -> dict[UUID, set[UUID]]:
        """Return those of these users that the directory assigned to services of the organization, by the id of the service."""
        ...

    async def page_by_directory(self, org_id: UUID, service_id: UUID, after: UUID | None, limit: int) -> list[UUID]:
        """Return the next ids, in order, of users that the directory assigned to the service."""
        ...


class Assignments(AssignmentsRead, Protocol):
    """Write access to the assignments of users to services. Callers lock the accounts before calling any method."""

    async def add(self, org_id: UUID, service_id: UUID, user_ids: Collection[UUID], origin: EnrollmentOrigin, now: datetime) -> bool:
        """Make the users end users of the service without a sign-in. A weaker origin of an earlier enrollment becomes this one.

        A member who is new to the service loses it when the membership ends. Returns False if the
        service does not exist or is being deleted.
        """
        ...

    async def end(self, org_id: UUID, service_id: UUID, user_ids: Collection[UUID]) -> None:
        """End the users' assignments. They remain end users of the service, as if they had enrolled themselves."""
        ...

    async def remove_unused(self, org_id: UUID, service_id: UUID, user_ids: Collection[UUID]) -> None:
        """Remove those of these users from the service who are unassigned, never signed in and have no subscription."""
        ...


class EndUsersRead(Protocol):
    """Read access to the end users of an organization. It covers only data of this organization (security T-3).

    `services_with_refused_users` is for the operator, and reads all organizations.
    """

    async def page(
        self, org_id: UUID, page: Page, *, search: str | None = None, service_id: UUID | None = None
    ) -> PageResult[EndUserSummary]:
        """Return a page of end users, latest first, optionally of one service only.

        `search` is a part of an email address in lower case. Users with a deactivated account,
        and users that the organization's directory blocks, are left out. Latest means that the
        user started last to use the service, or any service of the organization.
        """
        ...

    async def by_id(self, org_id: UUID, user_id: UUID) -> EndUser | None: ...
    async def services(self, org_id: UUID, user_id: UUID) -> list[UsedService]: ...
    async def identities(self, org_id: UUID, user_id: UUID) -> list[LinkedIdentity]: ...

    async def may_use(self, org_id: UUID, service_id: UUID, user_id: UUID, now: datetime) -> bool | None:
        """Return whether the user may use the service, or None if there is no such service."""
        ...

    async def may_sign_on(self, org_id: UUID, service_id: UUID, user_id: UUID, now: datetime) -> bool | None:
        """Return whether the user may use the service with SAML, or None if there is no such service."""
        ...

    async def services_with_refused_users(self, limit: int, now: datetime) -> list[tuple[str, str]]:
        """Return the services that admit anyone, while SAML refuses some of their users: the slugs of organization and service.

        This reads all users of these services.
        """
        ...

    async def is_known(self, org_id: UUID, user_id: UUID) -> bool:
        """Return whether the user is an end user or a confirmed member of the organization."""
        ...

    async def is_confirmed_member(self, org_id: UUID, user_id: UUID) -> bool:
        """Return whether the user is a confirmed member of the organization."""
        ...


class EndUsers(EndUsersRead, Protocol):
    """Write access to the end users of an organization. Callers lock the account before calling any method.

    All methods maintain the counters. They return None if the service does not exist or is being
    deleted, or if the user may not use it (`core.authentication.service_access`). Otherwise the
    deletion of the service waits until the transaction ends.
    """

    def enroll_deferred(self, service_id: UUID, user_id: UUID, now: datetime) -> Deferred[bool]:
        """Make a user who is signing in an end user of the service, independent of any membership.

        The result is available after the next statement.
        """
        ...

    def enroll_by_saml_deferred(self, org_slug: str, service_slug: str, user_id: UUID, now: datetime) -> Deferred[bool]:
        """Enroll a user who is signing in with SAML to the service with this slug; the result is available after the next statement.

        A member who is new to the service uses it as a member, and loses it when the membership ends.
        """
        ...


class OwnApplications(Protocol):
    """The applications of users, in all organizations."""

    async def of_user(self, user_id: UUID, limit: int, now: datetime) -> list[OwnApplication]:
        """Return the applications that the user may use, and has used, is assigned to, or is a confirmed member of the organization of.

        They are ordered by organization and name.
        """
        ...


class AnalyticsRead(Protocol):
    """Successful logins to the existing services of an organization, by day in UTC.

    A `service_id` of None means all services and the logins of members to the platform.
    """

    async def by_day(self, org_id: UUID, service_id: UUID | None, days: DateRange) -> list[DailyLogins]:
        """Return the number of logins per day, earliest first, without days that had none."""
        ...

    async def by_service(self, org_id: UUID, days: DateRange) -> list[ServiceLogins]:
        """Return the number of logins per service, highest first, without services that had none."""
        ...

    async def by_provider(self, org_id: UUID, service_id: UUID | None, days: DateRange) -> list[ProviderLogins]:
        """Return the number of logins per identity provider, highest first, without providers that had none."""
        ...

    async def recent(self, org_id: UUID, before: RecentLogin | None, limit: int) -> list[RecentLogin]:
        """Return the latest logins, or those just before `before`, newest first."""
        ...

    async def usage(self, org_id: UUID, service_id: UUID, since: datetime) -> ServiceUsage:
        """Return the figures of a service. Users are new or active if they joined or signed in since `since`."""
        ...


class OverviewRead(Protocol):
    """The figures on the overview of an organization."""

    async def figures(self, org_id: UUID, now: datetime) -> OrganizationFigures:
        """Return the numbers of members, services and pending tasks. The numbers are 0 if the organization does not exist."""
        ...


# The repositories of this area, by the kind of access


class ApplicationsReading(Protocol):
    """Read access to the repositories of applications."""

    @property
    def analytics(self) -> AnalyticsRead: ...
    @property
    def api_keys(self) -> ApiKeysRead: ...
    @property
    def assignments(self) -> AssignmentsRead: ...
    @property
    def end_users(self) -> EndUsersRead: ...
    @property
    def overview(self) -> OverviewRead: ...
    @property
    def own_applications(self) -> OwnApplications: ...
    @property
    def plans(self) -> PlansRead: ...
    @property
    def service_users(self) -> ServiceUsersRead: ...
    @property
    def services(self) -> ServicesRead: ...


class ApplicationsTransaction(Protocol):
    """The repositories of applications in a transaction."""

    @property
    def api_keys(self) -> ApiKeys: ...
    @property
    def assignments(self) -> Assignments: ...
    @property
    def end_users(self) -> EndUsers: ...
    @property
    def plans(self) -> Plans: ...
    @property
    def service_users(self) -> ServiceUsers: ...
    @property
    def services(self) -> Services: ...


class ApplicationsAutocommit(Protocol):
    """The statements of applications that commit by themselves."""

    @property
    def services(self) -> ClientCharges: ...
    @property
    def api_keys(self) -> ApiKeyUse: ...
