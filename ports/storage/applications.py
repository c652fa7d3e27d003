"""Storage of the area applications."""

from collections.abc import Collection
from datetime import datetime
from typing import Protocol
from uuid import UUID

from core.applications.analytics_rules import DateRange, DailyLogins, ProviderLogins, ServiceLogins, RecentLogin, ServiceUsage
from core.applications.api_keys_rules import ApiKey, ApiKeyRecord
from core.applications.end_users_rules import EndUser, LinkedIdentity, EndUserSummary, UsedService
from core.applications.service_users_rules import ServiceUser
from core.applications.plans_rules import Plan
from core.applications.services_rules import Service, ServiceSummary, ServiceType
from core.billing.subscriptions_rules import Entitlement
from core.kernel.deferred import Deferred
from core.kernel.principals import ServiceContext
from core.kernel.values import PageResult, Page

# services: What is asked of storage about services.


class ServicesRead(Protocol):
    """Services, looked at."""

    async def by_slug(self, org_id: UUID, slug: str) -> Service | None: ...
    async def by_id(self, org_id: UUID, service_id: UUID) -> Service | None: ...

    async def context_of(self, service_id: UUID) -> ServiceContext | None: ...

    async def context(self, org_slug: str, slug: str) -> ServiceContext | None:
        """The service with its organization, whatever the status of that."""
        ...

    async def context_and_entitlement(self, service_id: UUID, user_id: UUID, now: datetime) -> tuple[ServiceContext, Entitlement] | None:
        """The service with its organization, whatever the status of that, and what the person has of it."""
        ...

    async def named(self, org_slug: str, slug: str) -> tuple[Service, ServiceContext] | None:
        """The same with all that the service is."""
        ...

    async def of_client(self, client_id: UUID) -> tuple[Service, ServiceContext] | None:
        """The same for the service that applications know by this client id."""
        ...

    async def listed(
        self, org_id: UUID, service_type: ServiceType | None, after: Service | None, limit: int, offset: int
    ) -> list[ServiceSummary]:
        """Those of this type that come after this one, the oldest first."""
        ...

    async def count(self, org_id: UUID) -> int: ...


class Services(ServicesRead, Protocol):
    """Services, changed. The organization is locked before any of these."""

    async def add(self, service: Service) -> None:
        """Raises ServiceSlugTaken."""
        ...

    async def save(self, service: Service) -> None:
        """Write all that can change of it; the counters are not among it."""
        ...

    async def delete(self, org_id: UUID, service_id: UUID, now: datetime) -> None:
        """Remove the service and what hangs on it, when nobody is signing in to it any more; nobody can after that.

        A tombstone tells Sweep.DELETED_SERVICES to remove its logins.
        """
        ...

    async def lock_users(self, org_id: UUID, service_id: UUID, after: UUID | None, limit: int) -> UUID | None:
        """Lock the next who used this service, which is gone, in the order of their ids; the last of them, or None if there are no more.

        And who of them used no other service of the organization as end users, so that they do not begin to.
        """
        ...

    async def remove_users(self, org_id: UUID, service_id: UUID, after: UUID | None, until: UUID) -> int:
        """Remove those that were locked last; how many of them are end users of the organization no more."""
        ...

    async def remove_totals(self, org_id: UUID, service_id: UUID, forgotten: int) -> None:
        """Remove the totals of its logins, and count out so many end users."""
        ...

    async def purge(self, service_id: UUID, limit: int) -> None:
        """Remove at most `limit` logins to a deleted service."""
        ...


# plans: What is asked of storage about plans.


class PlansRead(Protocol):
    """Plans, looked at; those that were removed are not there any more."""

    async def by_id(self, org_id: UUID, service_id: UUID, plan_id: UUID) -> Plan | None: ...

    async def service_of(self, org_id: UUID, plan_id: UUID) -> UUID | None:
        """Which service of the organization has this plan."""
        ...

    async def listed(self, org_id: UUID, service_id: UUID, after: Plan | None, limit: int) -> list[Plan]:
        """Those of the service that come after this one, the oldest first."""
        ...


class Plans(PlansRead, Protocol):
    """Plans, changed. The organization is locked before any of these."""

    async def add(self, plan: Plan) -> None: ...

    async def save(self, plan: Plan) -> None:
        """Write all that can change of it."""
        ...

    async def remove(self, org_id: UUID, plan_id: UUID, now: datetime) -> None:
        """The plan is gone for everybody but those whose subscription to it has ended."""
        ...


# api_keys: What is asked of storage about API keys.


class ApiKeysRead(Protocol):
    """API keys, looked at; they are kept as SHA-256."""

    async def standing(self, key_hash: bytes, now: datetime) -> ApiKeyRecord | None:
        """Everything a request with this key is judged by, or None unless there is such a key and it has not expired."""
        ...

    async def is_live(self, service_id: UUID, key_id: UUID, now: datetime) -> bool:
        """Whether the service has this key and it has not expired."""
        ...

    async def page(self, org_id: UUID, service_id: UUID, limit: int, offset: int) -> PageResult[ApiKey]:
        """Those of the service, expired ones too, the oldest first."""
        ...

    async def by_id(self, org_id: UUID, service_id: UUID, key_id: UUID) -> ApiKey | None: ...


class ApiKeys(ApiKeysRead, Protocol):
    """API keys, changed. The organization is locked before any of these."""

    async def add(self, key: ApiKey, key_hash: bytes) -> None: ...
    async def remove(self, org_id: UUID, service_id: UUID, key_id: UUID) -> None: ...


class ApiKeyUse(Protocol):
    async def used(self, key_id: UUID, now: datetime, before: datetime) -> None:
        """The key was used now, unless it is known to have been used since `before`."""
        ...


# service_users: What is asked of storage about the users of a service.


class ServiceUsersRead(Protocol):
    """Who uses a service, as its API keys see them, looked at."""

    async def page(self, org_id: UUID, service_id: UUID, limit: int, offset: int) -> PageResult[ServiceUser]:
        """Those who use the service, for the longest time first."""
        ...

    async def by_id(self, org_id: UUID, service_id: UUID, user_id: UUID) -> ServiceUser | None: ...


class ServiceUsers(ServiceUsersRead, Protocol):
    """The same, changed. The account is locked before any of these."""

    async def remove(self, org_id: UUID, service_id: UUID, user_id: UUID) -> None:
        """The person does not use the service any more: also removes what they have of it, identities and subscriptions. Also counts."""
        ...

    async def remove_former_members(self, org_id: UUID, user_ids: Collection[UUID]) -> None:
        """These, who have left the organization, do not use those of its services any more that they have used by being members, and by
        nothing else; unless they have a subscription there, which is kept with whom it is for. Also counts."""
        ...

    async def remove_everywhere(self, user_id: UUID) -> None:
        """The same for every service, also those of organizations that are gone."""
        ...


# end_users: What is asked of storage about who uses the services of an organization.


class EndUsersRead(Protocol):
    """Who uses the services of an organization, looked at. Of a person, this is what belongs to that organization (security.md T-3)."""

    async def page(self, org_id: UUID, page: Page, *, search: str | None = None, service_id: UUID | None = None) -> PageResult[EndUserSummary]:
        """Those whose account is not deactivated, nor they by the organization's directory; who use this service, if one is given; whose
        address has `search` in it, which is in lower case. The newest relation, to the service or else to the organization, comes first."""
        ...

    async def by_id(self, org_id: UUID, user_id: UUID) -> EndUser | None: ...
    async def services(self, org_id: UUID, user_id: UUID) -> list[UsedService]: ...
    async def identities(self, org_id: UUID, user_id: UUID) -> list[LinkedIdentity]: ...

    async def knows(self, org_id: UUID, user_id: UUID) -> bool:
        """Whether the person uses a service of the organization, or is its member."""
        ...


class EndUsers(EndUsersRead, Protocol):
    """Who uses the services of an organization, changed. The account is locked before any of these."""

    async def add(self, service_id: UUID, user_id: UUID, now: datetime, *, signed_in: bool) -> bool:
        """The person uses the service from now on, in their own right, and has signed in to it just now, if so.

        Whether the service is there; it then stays until the transaction ends. Also counts.
        """
        ...

    def enroll_deferred(self, service_id: UUID, user_id: UUID, now: datetime) -> Deferred[bool]:
        """The same for a sign-in, before the next statement; None where the service is not there."""
        ...

    def enroll_member_deferred(self, org_id: UUID, service_slug: str, user_id: UUID, now: datetime) -> Deferred[bool]:
        """The same for the service of this slug, but whoever did not use it before does so by being a member, and no longer than that."""
        ...


# analytics: What is asked of storage about how often people sign in.


class AnalyticsRead(Protocol):
    """Successful logins to the services that an organization has, counted by day in UTC; of one of them, where `service_id` is given."""

    async def by_day(self, org_id: UUID, service_id: UUID | None, days: DateRange) -> list[DailyLogins]:
        """Of each day that had any, the earliest first."""
        ...

    async def by_service(self, org_id: UUID, days: DateRange) -> list[ServiceLogins]:
        """To each service that had any, most first."""
        ...

    async def by_provider(self, org_id: UUID, service_id: UUID | None, days: DateRange) -> list[ProviderLogins]:
        """Through each external identity provider that had any, most first."""
        ...

    async def recent(self, org_id: UUID, before: RecentLogin | None, limit: int) -> list[RecentLogin]:
        """The latest, or those right before that one, the newest first."""
        ...

    async def use(self, org_id: UUID, service_id: UUID, since: datetime) -> ServiceUsage:
        """Users and logins of a service; new and active are the users who began to use it, or signed in to it, since then."""
        ...


# The repositories of this area, by the kind of access


class ApplicationsReading(Protocol):
    """Read access to the repositories of applications."""

    @property
    def analytics(self) -> AnalyticsRead: ...
    @property
    def api_keys(self) -> ApiKeysRead: ...
    @property
    def end_users(self) -> EndUsersRead: ...
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
    def api_keys(self) -> ApiKeyUse: ...
