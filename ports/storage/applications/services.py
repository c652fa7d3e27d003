"""Storage for services, plans and API keys."""

from collections.abc import Awaitable, Mapping, Sequence
from datetime import datetime
from typing import Any, Protocol
from uuid import UUID

from core.applications.model import api_keys, plans, services
from core.applications.model.users import AccessPolicy
from core.kernel.callers import ServiceContext
from core.kernel.rate_limits import Bucket
from core.kernel.values import PageResult


class ServicesRead(Protocol):
    """Read access to services. A `ServiceContext` includes the organization and its status, which may be inactive."""

    async def by_slug(self, org_id: UUID, slug: str) -> services.Service | None: ...
    async def by_id(self, org_id: UUID, service_id: UUID) -> services.Service | None: ...
    async def context_by_id(self, service_id: UUID) -> ServiceContext | None: ...
    async def context_by_slug(self, org_slug: str, slug: str) -> ServiceContext | None: ...
    async def client_by_slug(self, org_slug: str, slug: str) -> tuple[services.Service, ServiceContext] | None: ...
    async def client_by_id(self, org_id: UUID, service_id: UUID) -> tuple[services.Service, ServiceContext] | None: ...
    async def by_client_id(self, client_id: UUID) -> tuple[services.Service, ServiceContext] | None: ...

    async def list_after(
        self,
        org_id: UUID,
        service_type: services.ServiceType | None,
        after: services.Service | None,
        limit: int,
        offset: int,
        *,
        search: str | None = None,
        order: services.ServiceOrder = services.ServiceOrder.CREATED,
    ) -> list[services.ServiceSummary]:
        """Return the services with this type that come after `after` in this order.

        `search` is a lower-case part of the name or slug. A `service_type` of None means all types. An `after` of None
        means the list's start.
        """

    async def with_policy(self, org_id: UUID, policy: AccessPolicy) -> list[services.Service]:
        """Return the services with this policy, oldest first."""

    async def of_group(self, org_id: UUID, group_id: UUID) -> list[services.Service]:
        """Return the services that the group is assigned to, by name."""

    async def count(self, org_id: UUID) -> int: ...
    async def has_origin(self, org_id: UUID, origin: str) -> bool:
        """Return whether a service in the organization has a redirect URI or its launch URL at this origin, which is in lower case."""


class ClientCharges(Protocol):
    """Rate limits for OAuth clients."""

    async def charge_client(
        self, client_id: UUID, secret_hashes: Sequence[bytes], buckets: tuple[Bucket, ...], now: datetime
    ) -> tuple[services.Service, ServiceContext, float | None] | None:
        """Return the client, and take a token from every bucket if its secret has a hash in `secret_hashes`.

        The former secret counts until it expires. The last value is the wait in seconds, as in
        `Rates.take`, or None if the secret is wrong.
        """


class Services(ServicesRead, Protocol):
    """Write access to services. Callers lock the organization before calling any method."""

    async def add(self, service: services.Service) -> None:
        """Add a service. Raises: ServiceSlugTaken."""

    async def save(self, service: services.Service) -> None:
        """Save all fields that can change in a service, except the counters."""

    async def delete(self, org_id: UUID, service_id: UUID, now: datetime | None) -> None:
        """Delete the service and the rows that cascade from it.

        The deletion waits for sign-ins to the service that are in progress. Later sign-ins do not find the service.
        Sweep.DELETED_SERVICES deletes its logins later, unless `now` is None.
        """

    def context_and_entitlement(
        self, service_id: UUID, user_id: UUID, now: datetime
    ) -> Awaitable[tuple[ServiceContext, plans.Entitlement] | None]:
        """Return the service and the plan that this user has there. The query needs no lock."""

    async def lock_users(self, org_id: UUID, service_id: UUID, after: UUID | None, limit: int) -> UUID | None:
        """Lock the next users of a deleted service, in id order. Return the last id, or None if no users are left.

        The users' end user rows are also locked, if they use no other service in the organization. So they cannot start
        to use another service before their rows are removed.
        """

    async def remove_users(self, org_id: UUID, service_id: UUID, after: UUID | None, until: UUID) -> int:
        """Remove the users that `lock_users` locked. Return how many of the removed users are no longer end users in the organization."""

    async def remove_totals(self, org_id: UUID, service_id: UUID, end_users: int) -> None:
        """Remove a deleted service's login totals, and subtract `end_users` from the organization's end user count."""

    async def purge(self, service_id: UUID, limit: int) -> None:
        """Delete at most `limit` logins to a deleted service."""


class ServiceClaimsRead(Protocol):
    """Read access to the services' claims documents."""

    async def find(self, org_id: UUID, service_id: UUID) -> services.StoredClaims | None:
        """Return a service's claims document, or None if it has none."""

    async def service_with_source(self, org_id: UUID, source: str) -> str | None:
        """Return the name of a service with this source in its claims or SAML attributes, or None."""


class ServiceClaims(ServiceClaimsRead, Protocol):
    """Write access to claims documents. Callers lock the organization before calling any method."""

    async def put(self, org_id: UUID, service_id: UUID, document: Mapping[str, Any], sources: Sequence[str], now: datetime) -> int:
        """Store a service's document, and return its new version. `sources` are the kinds that its values have: attribute, directory."""

    async def remove(self, org_id: UUID, service_id: UUID) -> bool:
        """Remove a service's document, and return whether it had a document."""


class PlansRead(Protocol):
    """Read access to plans, without deleted plans."""

    async def by_id(self, org_id: UUID, service_id: UUID, plan_id: UUID) -> plans.Plan | None: ...

    async def service_id_of(self, org_id: UUID, plan_id: UUID) -> UUID | None:
        """Return which service has this plan, by id, or None if the organization has no such plan."""

    async def list_after(self, org_id: UUID, service_id: UUID, after: plans.Plan | None, limit: int) -> list[plans.Plan]:
        """Return the service's plans that come after `after`, oldest first. Without `after`, the list starts at the beginning."""


class Plans(PlansRead, Protocol):
    """Write access to plans. Callers lock the organization before calling any method."""

    async def add(self, plan: plans.Plan) -> None: ...

    async def save(self, plan: plans.Plan) -> None:
        """Save all fields that can change in a plan."""

    async def remove(self, org_id: UUID, plan_id: UUID, now: datetime) -> None:
        """Mark a plan as deleted. Ended subscriptions still refer to the plan."""


class ApiKeysRead(Protocol):
    """Read access to API keys, which are stored as SHA-256."""

    async def by_hash(self, key_hash: bytes, now: datetime) -> api_keys.ApiKeyRecord | None:
        """Return everything needed to authenticate a request with this key, or None if it is unknown or expired."""

    async def is_live(self, service_id: UUID, key_id: UUID, now: datetime) -> bool:
        """Return whether the service has this key and it has not expired."""

    async def page(self, org_id: UUID, service_id: UUID, limit: int, offset: int) -> PageResult[api_keys.ApiKey]:
        """Return a page with the service's keys, newest first, including expired keys."""

    async def by_id(self, org_id: UUID, service_id: UUID, key_id: UUID) -> api_keys.ApiKey | None: ...


class ApiKeys(ApiKeysRead, Protocol):
    """Write access to API keys. Callers lock the organization before calling any method."""

    async def add(self, key: api_keys.ApiKey, key_hash: bytes) -> None: ...
    async def remove(self, org_id: UUID, service_id: UUID, key_id: UUID) -> None: ...


class ApiKeyUse(Protocol):
    """The last use of API keys."""

    async def record_use(self, key_id: UUID, now: datetime, before: datetime) -> None:
        """Store that the key was used now, unless a use after `before` is stored already."""
