"""Storage for OAuth: authorization codes, pushed requests, consents, client assertions and device codes."""

from collections.abc import Awaitable, Collection
from datetime import datetime
from typing import Protocol
from uuid import UUID

from core.accounts.model.accounts import Account
from core.applications.model.plans import Entitlement
from core.applications.model.services import Service
from core.authentication.model import agreements, openid
from core.federation.oauth.model import authorization, consents, device_flow, external_clients
from core.kernel import values
from core.kernel.callers import ServiceContext
from core.kernel.rate_limits import Bucket


class AuthorizationCodeUse(Protocol):
    """Using up an authorization code without a session."""

    async def use_up(self, code_hash: bytes, service: ServiceContext | None, session_id: UUID) -> None:
        """Mark an unused code as used, for this session that did not start."""


class AuthorizationCodes(Protocol):
    """Changes to authorization codes. The account is locked before any call.

    `service` is the client that presents the code, or None for the platform's frontend. A code for another client is
    not found.
    """

    async def add(self, code: authorization.AuthorizationCode, code_hash: bytes) -> bool:
        """Add the code. Return False if its service was deleted."""

    def lock_account(self, code_hash: bytes, service: ServiceContext | None) -> Awaitable[Account | None]:
        """Lock the code's account, if it allows sign-ins at all. The code may be used or expired."""

    def redeem(
        self, code: authorization.PresentedCode, session_id: UUID, now: datetime, *, key_thumbprint: str | None = None
    ) -> Awaitable[authorization.RedeemedAuthorizationCode | None]:
        """Redeem the code for this session. Return None if that is not possible.

        If the code is bound to a key, `key_thumbprint` must be this key's thumbprint.

        The code must be unused and not expired, and the browser session that got it must be alive. The redirect URI and
        the challenge must be as in the authorization request. If that request had no redirect URI, the token request
        may have a registered redirect URI. Exactly one parallel call can redeem the code.
        """

    def enroll_redeemer(
        self, code_hash: bytes, service_id: UUID, session_id: UUID, now: datetime
    ) -> tuple[Awaitable[bool], Awaitable[tuple[ServiceContext, Entitlement] | None]]:
        """Enroll the code's user in the service, as `EndUsers.enroll` does, and return the service and the user's plan there.

        The code must have been redeemed for this session. Otherwise no user is enrolled.
        """

    async def session_started_by(self, code_hash: bytes, service: ServiceContext | None) -> UUID | None:
        """Return the session that this code was redeemed for, or None if it is unused."""


class PushedRequestsRead(Protocol):
    """Read access to pushed authorization requests.

    An external client has a `client_uri`, and another service a `client_id`. Without `client_uri` and `client_id`, the client is the
    platform's frontend.
    """

    async def load(self, request_hash: bytes, client_id: UUID | None, now: datetime, client_uri: str | None = None) -> str | None:
        """Return the parameters of this client's request that is neither used nor expired, as a query string."""


class PushedRequestUses(Protocol):
    """Changes to pushed authorization requests that commit by themselves."""

    async def add(self, request: authorization.StoredRequest) -> bool:
        """Store the request. Return False if its service was deleted."""

    async def use(self, request_hash: bytes, now: datetime) -> bool:
        """Use up a request that has not expired. Exactly one call returns True."""


class PushedRequests(Protocol):
    """Changes to pushed authorization requests in a transaction."""

    async def use(self, request_hash: bytes, now: datetime) -> bool:
        """Use up a request that has not expired. Exactly one call returns True."""


class ConsentsRead(Protocol):
    """The users' consents to applications."""

    async def agreement(self, org_id: UUID, service_id: UUID, user_id: UUID, resource_id: UUID | None) -> agreements.Agreement:
        """Return the scopes that this user has agreed to, with this API resource's scopes.

        Scopes for claims that the application asked for by name are included.
        """

    async def of_user(self, user_id: UUID, limit: int) -> list[consents.Consent]:
        """Return this user's newest consents to applications in all organizations, by organization and application."""

    async def by_service(self, user_id: UUID, service_id: UUID) -> consents.Consent | None:
        """Return this user's consent to an application in any organization."""


class Consents(ConsentsRead, Protocol):
    """Write access to consents. Callers lock the account before calling any method."""

    async def add(
        self,
        org_id: UUID,
        service_id: UUID,
        user_id: UUID,
        scope: Collection[openid.Scope],
        now: datetime,
        client: agreements.ClientFacts | None = None,
    ) -> bool:
        """Add these scopes to the consent, and the facts about an external client. Return whether any scope is new.

        If the service was deleted, add nothing.
        """

    async def add_api(self, org_id: UUID, service_id: UUID, user_id: UUID, grant: openid.ResourceGrant, now: datetime) -> bool:
        """Add this access to an API resource to the consent, which exists.

        Return whether any scope is new, or the API resource itself. If the API resource was deleted, add nothing.
        """

    async def remove(self, user_id: UUID, service_id: UUID) -> consents.Consent | None:
        """Delete this user's consent to an application in any organization, and return it, if there is one."""

    async def remove_in_organization(self, org_id: UUID, user_id: UUID) -> None:
        """Delete this user's consents to all applications in an organization."""


class ExternalGrantsRead(Protocol):
    """Read access to what users granted external clients at API resources."""

    async def page(
        self, org_id: UUID, resource_id: UUID, page: values.Page, *, search: str | None = None
    ) -> values.PageResult[consents.ExternalGrant]:
        """Return a page with the grants at this API resource, by email address and client.

        `search` is a lower-case part of an email address.
        """

    async def find(self, org_id: UUID, resource_id: UUID, user_id: UUID, client_id: UUID) -> consents.ExternalGrant | None: ...


class ExternalGrants(ExternalGrantsRead, Protocol):
    """Write access to what users granted external clients. Callers lock the account before calling any method."""

    async def remove(self, org_id: UUID, resource_id: UUID, user_id: UUID, client_id: UUID) -> consents.ExternalGrant | None:
        """Delete and return this grant, if it exists. If it is the client's last grant, the whole consent to the client goes, too.

        The method runs two statements.
        """


class ExternalClientsRead(Protocol):
    """External clients that users have agreed to. An external client is an application in the organization that has its API resource."""

    async def standing(self, org_id: UUID, service_id: UUID, resource_id: UUID, user_id: UUID) -> tuple[bool, Service | None]:
        """Return whether this user may use the API resource, and the client with this id if it is stored."""

    async def of_secret(self, client_uri: str, secret_hash: bytes, now: datetime) -> external_clients.IdentifiedClient | None:
        """Return the client with this address that got this code or refresh token.

        Used codes and tokens count, so that a second use is noticed.
        """

    async def is_known(self, client_uri: str, registered_at: datetime) -> bool:
        """Return whether an organization stores the client with this sealed client id, which registered itself at that time."""

    async def has_consents(self, org_id: UUID, service_id: UUID) -> bool:
        """Return whether a user agrees to the client now."""

    async def accepts_token_endpoint(self, org_id: UUID, identifier: str) -> bool:
        """Return whether this API resource lets client assertions name the token endpoint."""


class ExternalClients(ExternalClientsRead, Protocol):
    """Write access to external clients. Callers lock the API resource before `save`."""

    async def find_unused(
        self, last: external_clients.UnusedClient | None, before: datetime, now: datetime
    ) -> external_clients.UnusedClient | None:
        """Return the next client with a document that was fetched before that time, without later sign-ins, live sessions and live codes.

        The oldest document comes first, and clients up to `last` are left out.
        """

    async def lock_unused(self, client: external_clients.UnusedClient, before: datetime, now: datetime) -> bool:
        """Lock the client if it is still unused. The organization is locked."""

    async def note_failure(self, org_id: UUID, service_id: UUID, now: datetime) -> None:
        """Remember that the document could not be fetched, unless a later document is stored."""

    async def note_success(self, org_id: UUID, service_id: UUID, fetched_at: datetime) -> None:
        """Forget the failures before the document was fetched."""

    def is_stored(self, service: Service, resource_id: UUID) -> Awaitable[bool]:
        """Return whether `save` would change nothing."""

    async def save(self, service: Service, resource_id: UUID, now: datetime) -> tuple[bool, Service | None]:
        """Store the client, or its document if that is newer, and let the client ask for this API resource.

        Failures before a newer document are forgotten. Return whether the client could not ask for the resource before, and the client with
        the replaced document, if there was one. Among parallel calls, exactly one gets True and exactly one gets the replaced document.
        """


class UsedAssertions(Protocol):
    """The client assertions that were used (RFC 7523)."""

    async def use(
        self, issuer_id: UUID, jti_hash: bytes, expires_at: datetime, client_id: UUID, buckets: tuple[Bucket, ...], now: datetime
    ) -> float | None:
        """Store that an assertion was used, and take a token from all buckets of its client.

        `issuer_id` names the assertion's issuer in all organizations. Return the wait in seconds, as in `Rates.take`, or None if the issuer
        has used this id before. Exactly one parallel call gets a number. The id is kept until `expires_at`, when the assertion is refused
        in any case.
        """


class DeviceCodesRead(Protocol):
    """Read access to device requests."""

    async def by_user_code(self, user_code_hash: bytes) -> device_flow.DeviceRequest | None:
        """Return the request with this user code, in any status, even if it has expired."""


class DeviceCodes(DeviceCodesRead, Protocol):
    """Changes to device requests. The user's account is locked before `decide` and `redeem`."""

    async def add(self, code: device_flow.DeviceCode) -> bool:
        """Add the request. Return False if its user code is in use or its service was deleted."""

    async def decide(self, user_code_hash: bytes, status: device_flow.DeviceRequestStatus, session_id: UUID | None, now: datetime) -> bool:
        """Set a pending request's status, and the session that approved it, if any.

        Return False if the request is not pending, has expired or is locked. Exactly one parallel call gets True.
        """

    async def redeem(self, device_code_hash: bytes, service: ServiceContext, now: datetime) -> bool:
        """Redeem an approved request that has not expired.

        Return False if there is no such request. Exactly one parallel call gets True.
        """


class DevicePolls(Protocol):
    """Device polls (security V-4)."""

    async def poll(
        self, device_code_hash: bytes, client_id: UUID | None, challenge: str | None, now: datetime, *, is_authenticated: bool = False
    ) -> device_flow.DevicePoll | None:
        """Count a poll in a single statement, and return the request as it was before.

        `client_id` and `challenge`, the code verifier's S256 challenge, are None if the device sent none. An external
        client with keys must have authenticated. An early poll lengthens the interval. A poll that does not match the
        request counts as a failure, and too many failures lock the code.
        """
