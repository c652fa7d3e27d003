"""Storage of OAuth authorization codes, device codes, SAML and sign-ins at identity providers.

Secrets (codes, states, cookies) are stored and looked up by their SHA-256. `browser_hash` is the
SHA-256 of the cookie of a browser. Times are UTC.

The module is longer than 400 lines because each area has one storage module (docs/adr/0018).
"""

from collections.abc import Collection, Mapping, Sequence
from datetime import datetime
from typing import Protocol
from uuid import UUID

from core.accounts.model.accounts import Account
from core.applications.model.services import Service
from core.applications.model.users import DeferredEnrollment
from core.authentication.model.openid import ResourceGrant, Scope
from core.federation.model.sign_in import ProviderState
from core.federation.oauth.model.authorization import Agreement, AuthorizationCode, Consent, RedeemedAuthorizationCode
from core.federation.oauth.model.device_flow import DeviceCode, DevicePoll, DeviceRequest, DeviceRequestStatus
from core.federation.oauth.model.pushed_requests import StoredRequest
from core.federation.saml.model.configuration import CertificateState, SamlCertificate, SamlConfiguration, SamlSetup
from core.federation.saml.model.logout import EndedSessions, SamlLogout, SamlSession
from core.federation.saml.model.messages import NameId
from core.federation.saml.model.sign_on import SamlSignOn
from core.kernel.callers import ServiceContext
from core.kernel.deferred import Deferred
from core.kernel.providers import Provider
from core.kernel.rate_limits import Bucket

# OAuth authorization codes


class AuthorizationCodes(Protocol):
    """Changes to authorization codes. The account is locked before any of these.

    `service` is the client that presents the code, or None for the platform's frontend. Codes of
    other clients are not found.
    """

    async def add(self, code: AuthorizationCode, code_hash: bytes) -> bool:
        """Add the code. Return False if its service was deleted."""
        ...

    def lock_account_deferred(self, code_hash: bytes, service: ServiceContext | None) -> Deferred[Account]:
        """Lock the account of the code with the next statement, if it allows sign-ins at all. The code may be used or expired."""
        ...

    def redeem_deferred(
        self,
        code_hash: bytes,
        service: ServiceContext | None,
        redirect_uri: str | None,
        challenge: str | None,
        session_id: UUID,
        now: datetime,
        *,
        registered: bool,
        key_thumbprint: str | None = None,
    ) -> Deferred[RedeemedAuthorizationCode]:
        """Redeem the code for this session with the next statement. The result is None if that is not possible.

        If the code is bound to a key, `key_thumbprint` must be that of the key.

        The code must be unused and not expired, and the browser session that got it must be alive.
        The redirect URI and the challenge must be those of the authorization request. If that
        request had no redirect URI, the token request may have a registered one (`registered`).
        Only one of several parallel calls can redeem the code.
        """
        ...

    def enroll_redeemer_deferred(self, code_hash: bytes, service_id: UUID, session_id: UUID, now: datetime) -> DeferredEnrollment:
        """Enroll the user of the code in the service with the next statement, as `EndUsers.enroll_deferred` does.

        The code must have been redeemed for this session. Otherwise no user is enrolled.
        """
        ...

    async def session_started_by(self, code_hash: bytes, service: ServiceContext | None) -> UUID | None:
        """Return the session that this code was redeemed for, or None if it is unused."""
        ...


# Pushed authorization requests


class PushedRequestsRead(Protocol):
    """Read access to pushed authorization requests. `client_id` is that of the service, or None for the platform's frontend."""

    async def load(self, request_hash: bytes, client_id: UUID | None, now: datetime) -> str | None:
        """Return the parameters of a request of this client that is neither used nor expired, as a query string."""
        ...


class PushedRequestUses(Protocol):
    """Changes to pushed authorization requests that commit by themselves."""

    async def add(self, request: StoredRequest) -> bool:
        """Store the request. Return False if its service was deleted."""
        ...

    async def present(self, request_hash: bytes, client_id: UUID | None, browser_hash: bytes, now: datetime, until: datetime) -> bool:
        """Bind a request of this client to the browser, if no other browser has it, and return whether it belongs to this browser now.

        The first time, its expiry moves to `until`. A used or expired request is not found. Of
        several browsers at once, exactly one gets it.
        """
        ...

    async def use(self, request_hash: bytes, now: datetime) -> bool:
        """Use up a request that has not expired. Of several calls, one returns True."""
        ...


class PushedRequests(Protocol):
    """Changes to pushed authorization requests in a transaction."""

    async def use(self, request_hash: bytes, now: datetime) -> bool:
        """Use up a request that has not expired. Of several calls, one returns True."""
        ...


class ConsentsRead(Protocol):
    """The consents of users to applications."""

    async def agreement(self, org_id: UUID, service_id: UUID, user_id: UUID, resource_id: UUID | None) -> Agreement:
        """Return the scopes that this user has agreed to, with those of this API resource.

        They include those of claims that the application asked for by name.
        """
        ...

    async def of_user(self, user_id: UUID, limit: int) -> list[Consent]:
        """Return the consents of this user to applications of all organizations, by organization and application."""
        ...

    async def by_service(self, user_id: UUID, service_id: UUID) -> Consent | None:
        """Return the consent of this user to an application of any organization."""
        ...


class Consents(ConsentsRead, Protocol):
    """Write access to consents. Callers lock the account before calling any method."""

    async def add(self, org_id: UUID, service_id: UUID, user_id: UUID, scope: Collection[Scope], now: datetime) -> bool:
        """Add these scopes to the consent. Return whether any is new. If the service was deleted, add nothing."""
        ...

    async def add_api(self, org_id: UUID, service_id: UUID, user_id: UUID, grant: ResourceGrant, now: datetime) -> bool:
        """Add this access to an API resource to the consent, which exists.

        Return whether any scope is new, or the API resource itself. If it was deleted, add nothing.
        """
        ...

    async def remove(self, user_id: UUID, service_id: UUID) -> Consent | None:
        """Delete the consent of this user to an application of any organization, and return it, if there is one."""
        ...


# Client assertions


class UsedAssertions(Protocol):
    """The client assertions that were used (RFC 7523)."""

    async def use(self, client_id: UUID, jti_hash: bytes, expires_at: datetime, buckets: tuple[Bucket, ...], now: datetime) -> float | None:
        """Store the use of an assertion, and take a token from each bucket of its client.

        Return the wait in seconds, as in `Rates.charge`, or None if the client has used this id
        before. Only one of several parallel calls gets a number. The id is kept until `expires_at`,
        when the assertion is refused in any case.
        """
        ...


# Device codes


class DeviceCodesRead(Protocol):
    """Read access to the requests of devices."""

    async def by_user_code(self, user_code_hash: bytes) -> DeviceRequest | None:
        """Return the request with this user code, in any status, even if it has expired."""
        ...


class DeviceCodes(DeviceCodesRead, Protocol):
    """Changes to the requests of devices. The user's account is locked before `decide` and `redeem`."""

    async def add(self, code: DeviceCode) -> bool:
        """Add the request. Return False if its user code is in use or its service was deleted."""
        ...

    async def decide(self, user_code_hash: bytes, status: DeviceRequestStatus, session_id: UUID | None, now: datetime) -> bool:
        """Set the status of a pending request, and the session that approved it, if any.

        Return False if the request is not pending, has expired or is locked. Only one of several
        parallel calls gets True.
        """
        ...

    async def redeem(self, device_code_hash: bytes, service: ServiceContext, now: datetime) -> bool:
        """Redeem an approved request that has not expired.

        Return False if there is none. Only one of several parallel calls gets True.
        """
        ...


class DevicePolls(Protocol):
    """Polls of devices (security V-4)."""

    async def poll(self, device_code_hash: bytes, client_id: UUID | None, challenge: str | None, now: datetime) -> DevicePoll | None:
        """Count a poll in one statement, and return the request as it was before.

        `client_id` and `challenge`, the S256 challenge of the code verifier, are None if the device
        sent none. An early poll lengthens the interval. A poll that does not match the request
        counts as a failure, and too many failures lock the code.
        """
        ...


# SAML configuration


class SamlRead(Protocol):
    """Read access to SAML configurations and certificates.

    The key of a certificate stays encrypted until it is used, which can raise SealBroken.
    """

    async def configuration(self, org_id: UUID, service_id: UUID) -> SamlConfiguration | None: ...

    async def certificate(self, org_id: UUID, service_id: UUID) -> SamlCertificate | None:
        """Return the active certificate."""
        ...

    async def certificates(self, org_id: UUID, service_id: UUID, now: datetime) -> Mapping[CertificateState, SamlCertificate]:
        """Return the certificates that have a key, in the order of `CertificateState`.

        The next and the previous one are left out when they have expired, and the previous one when it is no longer kept.
        """
        ...

    async def services_with_entity_id(self, org_id: UUID, service_id: UUID, entity_id: str, limit: int) -> list[str]:
        """Return the slugs of the organization's other services with this entity id, at most `limit`, in alphabetical order."""
        ...

    async def setup_by_slug(self, org_slug: str, service_slug: str) -> SamlSetup | None:
        """Return the configuration and the certificate of a service, or None if there is no such service.

        The status of the organization does not matter.
        """
        ...


class Saml(SamlRead, Protocol):
    """Changes to SAML configurations and certificates. The organization is locked before any of these."""

    async def configure(self, org_id: UUID, service_id: UUID, configuration: SamlConfiguration, now: datetime) -> None:
        """Replace the configuration. The service belongs to the organization."""
        ...

    async def disable(self, org_id: UUID, service_id: UUID, now: datetime) -> bool:
        """Disable SAML. Return whether it was enabled."""
        ...

    async def deactivate_certificates(self, org_id: UUID, service_id: UUID, now: datetime) -> bool:
        """Deactivate all certificates of the service and delete their keys. Return whether there was one."""
        ...

    async def move_certificate(
        self, org_id: UUID, service_id: UUID, states: Sequence[CertificateState], to: CertificateState | None, now: datetime
    ) -> bool:
        """Give the certificates in these states another one, which must be free. Return whether there was one.

        None deactivates them and deletes their keys. A certificate becomes the previous one for `PREVIOUS_KEPT`.
        """
        ...

    async def add_certificate(
        self, org_id: UUID, service_id: UUID, certificate: SamlCertificate, state: CertificateState = CertificateState.ACTIVE
    ) -> None:
        """Add the active or the next certificate of a service that has none in this state.

        The service belongs to the organization.
        """
        ...

    async def setup_by_id(self, org_id: UUID, service_id: UUID) -> SamlSetup | None:
        """Return the configuration and the certificate, as `setup_by_slug` does. This needs no lock."""
        ...


# SAML sign-on


class SamlSignOnsRead(Protocol):
    """Read access to sign-ons. A sign-on is pending until it is finished or expires."""

    async def find(
        self, org_slug: str, service_slug: str, state_hash: bytes, browser_hash: bytes, now: datetime
    ) -> tuple[SamlSetup, SamlSignOn | None] | None:
        """Return the setup of the service, and its pending sign-on with this state, or None if there is no such service.

        The sign-on is None unless it was started for this service in the browser with this cookie.
        """
        ...

    async def pending_service(self, state_hash: bytes, now: datetime) -> tuple[Service, ServiceContext] | None:
        """Return the service of the pending sign-on with this state, or None.

        The browser and the status of the organization do not matter.
        """
        ...

    async def known_persistent_name_id(self, org_id: UUID, service_id: UUID, user_id: UUID) -> str | None:
        """Return the persistent name by which the service knows this user, or None before the first assertion with one."""
        ...

    async def fresh_sign_in_since(self, state_hash: bytes, now: datetime) -> datetime | None:
        """Return the start time of the pending sign-on with this state if it requires a fresh sign-in, or None."""
        ...


class SamlSignOnStarts(Protocol):
    """The start of sign-ons."""

    async def add(self, sign_on: SamlSignOn) -> bool:
        """Add the sign-on. Return False if the service has used this request id before, or was deleted."""
        ...


class SamlSignOns(SamlSignOnsRead, SamlSignOnStarts, Protocol):
    """Changes to sign-ons, and the names by which services know users."""

    async def complete_sign_in(
        self, state_hash: bytes, user_id: UUID, session_id: UUID, ticket_hash: bytes, now: datetime
    ) -> tuple[UUID, str, UUID, str] | None:
        """Attach a sign-in through the API to the pending sign-on with this state.

        Return the id and slug of the organization and of the service, or None if no sign-on is pending.
        """
        ...

    async def record_fresh_sign_in(self, state_hash: bytes, user_id: UUID) -> None:
        """Record that an identity provider reauthenticated this user for the sign-on with this state, if any."""
        ...

    async def finish(self, org_id: UUID, service_id: UUID, state_hash: bytes, now: datetime) -> bool:
        """Finish the pending sign-on, so that it gets one response only.

        Only one of several parallel calls gets True.
        """
        ...

    async def reopen(self, org_id: UUID, service_id: UUID, state_hash: bytes) -> None:
        """Make the sign-on pending again, because its response was not sent."""
        ...

    def finish_deferred(self, org_id: UUID, service_id: UUID, state_hash: bytes, now: datetime) -> Deferred[bool]:
        """Finish the pending sign-on, as `finish` does. The result is None if another call has finished it."""
        ...

    def lock_user_deferred(self, org_slug: str, user_id: UUID, now: datetime, *, confirm_membership: bool) -> Deferred[Account]:
        """Lock the user's membership of this organization, and then the account, which is the result.

        With `confirm_membership`, the membership becomes a confirmed one. This queues two statements,
        which run with the next statement.
        """
        ...

    def lock_session_deferred(self, session_id: UUID, user_id: UUID, now: datetime) -> Deferred[bool]:
        """Lock the user's session until the transaction ends.

        The result is None if the session has ended, if it is an impersonation or a session of an
        application, or if the account is not usable.
        """
        ...

    async def persistent_name_id(self, org_id: UUID, service_id: UUID, user_id: UUID, new: str, now: datetime) -> str:
        """Return the persistent name of this user at the service.

        Store `new` if the user has none yet.
        """
        ...

    def add_session_deferred(
        self, session_id: UUID, org_id: UUID, service_id: UUID, session_index: str, name_id: NameId, now: datetime
    ) -> Deferred[str]:
        """Record that the browser session signs its user in to the service with this name.

        The result is the session index: `session_index`, or the one that was recorded the first
        time. It is available after the next statement or the commit.
        """
        ...


# SAML single logout


class SamlLogouts(Protocol):
    """The SAML sessions of browser sessions, and logouts in progress.

    A logout lasts until it expires, even if its services or the account are deleted.
    """

    async def sessions(self, session_id: UUID, now: datetime) -> list[SamlSession]:
        """Return the SAML sessions of a browser session that has not ended, the oldest first."""
        ...

    async def find_users(self, org_id: UUID, service_id: UUID, name_id: NameId, now: datetime) -> list[UUID]:
        """Return the users with this name at the service, from their SAML sessions that have not ended.

        Names that the service got before its newest one do not count.
        """
        ...

    async def end_sessions_at(self, org_id: UUID, service_id: UUID, user_id: UUID, now: datetime) -> EndedSessions:
        """End all browser sessions that have signed this user in to the service."""
        ...

    async def add(self, logout: SamlLogout) -> bool:
        """Add the logout. Return False if the initiating service was deleted."""
        ...

    async def lock(self, browser_hash: bytes, now: datetime) -> SamlLogout | None:
        """Lock and return the logout in progress in the browser with this cookie."""
        ...

    async def mark_partial(self, logout_id: UUID) -> None:
        """Record that the user may still be signed in at a service."""
        ...

    async def add_request(self, logout_id: UUID, request_id: str, user_id: UUID, session: SamlSession, done_at: datetime | None) -> bool:
        """Add a LogoutRequest for this session. Return False if its service was deleted.

        With `done_at`, the service ended the session itself at this time, so the request counts as
        answered.
        """
        ...

    async def requested_sessions(self, logout_id: UUID) -> list[SamlSession]:
        """Return the sessions of all requests of this logout, sent or not."""
        ...

    async def next_request(self, logout_id: UUID, now: datetime) -> tuple[str, SamlSession] | None:
        """Return the next request to send, and count it as sent.

        A request without a response is sent a second time, before the remaining ones.
        """
        ...

    async def last_request(self, logout_id: UUID) -> tuple[str, SamlSession] | None:
        """Return the request that was sent last, or None if it has a response."""
        ...

    async def record_response(
        self, logout_id: UUID, org_id: UUID, service_id: UUID, request_id: str, now: datetime, *, is_success: bool
    ) -> bool | None:
        """Record the service's response to a request of this logout, which is locked. Only the first response counts.

        Return whether it is the first one, or None if no such request was sent.
        """
        ...

    async def delete(self, logout_id: UUID) -> bool:
        """Delete the logout.

        Return whether it was partial: a service could not be notified, or did not confirm the logout.
        """
        ...


# Sign-in at identity providers


class ProviderStates(Protocol):
    """The states of browsers that are sent to identity providers."""

    async def add(self, pending: ProviderState) -> bool:
        """Add the state. Return False if its service was deleted or its session has ended."""
        ...


class ProviderReturns(Protocol):
    """The states of browsers that return from identity providers."""

    async def consume(self, state_hash: bytes, browser_hash: bytes, provider: Provider, now: datetime) -> ProviderState | None:
        """Delete and return the state that this browser got for this provider.

        Only one of several parallel calls gets it.
        """
        ...


# The repositories of this area, by the kind of access


class FederationReading(Protocol):
    """Read access to the repositories of federation."""

    @property
    def consents(self) -> ConsentsRead: ...
    @property
    def device_codes(self) -> DeviceCodesRead: ...
    @property
    def pushed_requests(self) -> PushedRequestsRead: ...
    @property
    def saml(self) -> SamlRead: ...
    @property
    def saml_sign_ons(self) -> SamlSignOnsRead: ...


class FederationTransaction(Protocol):
    """The repositories of federation in a transaction."""

    @property
    def authorization_codes(self) -> AuthorizationCodes: ...
    @property
    def consents(self) -> Consents: ...
    @property
    def device_codes(self) -> DeviceCodes: ...
    @property
    def provider_states(self) -> ProviderStates: ...
    @property
    def pushed_requests(self) -> PushedRequests: ...
    @property
    def saml(self) -> Saml: ...
    @property
    def saml_logouts(self) -> SamlLogouts: ...
    @property
    def saml_sign_ons(self) -> SamlSignOns: ...


class FederationAutocommit(Protocol):
    """The statements of federation that commit by themselves."""

    @property
    def client_assertions(self) -> UsedAssertions: ...
    @property
    def device_codes(self) -> DevicePolls: ...
    @property
    def provider_states(self) -> ProviderReturns: ...
    @property
    def pushed_requests(self) -> PushedRequestUses: ...
    @property
    def saml_sign_ons(self) -> SamlSignOnStarts: ...
