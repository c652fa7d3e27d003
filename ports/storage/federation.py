"""Storage of OAuth authorization codes, device codes, SAML and sign-ins at identity providers.

Secrets (codes, states, cookies) are stored and looked up by their SHA-256. Times are UTC.
"""

from datetime import datetime
from typing import Protocol
from uuid import UUID

from core.applications.services_rules import Service
from core.federation.oauth.authorization_rules import AuthorizationCode, IssuedCode
from core.federation.oauth.device_flow_rules import DeviceCode, DevicePoll, DeviceRequest, DeviceRequestStatus
from core.federation.saml.configuration_rules import SamlCertificate, SamlConfiguration, SamlSetup
from core.federation.saml.logout_rules import SamlLogout, SamlSession
from core.federation.saml.messages import NameId
from core.federation.saml.sign_on_rules import SamlSignOn, SignOnLocks
from core.federation.upstream.social_rules import ProviderState
from core.kernel.principals import ServiceContext
from core.kernel.providers import Provider

# OAuth authorization codes


class AuthorizationCodesRead(Protocol):
    """Read access to authorization codes.

    `service` is the client that presents the code, or None for the platform's frontend. Codes of
    other clients are not found.
    """

    async def find(self, code_hash: bytes, service: ServiceContext | None) -> IssuedCode | None:
        """Return the code, also if it is used or expired."""
        ...


class AuthorizationCodes(AuthorizationCodesRead, Protocol):
    """Changes to authorization codes. The account is locked before any of these."""

    async def add(self, code: AuthorizationCode, code_hash: bytes) -> bool:
        """Add the code. Return False if its service is deleted."""
        ...

    async def redeem(
        self,
        code_hash: bytes,
        service: ServiceContext | None,
        redirect_uri: str | None,
        challenge: str | None,
        session_id: UUID,
        now: datetime,
        *,
        registered: bool,
    ) -> bool:
        """Use the code up for this session, and return whether that was possible. Atomic.

        The code must be unused and not expired, the browser session it was issued in alive, and
        redirect URI and challenge those of the authorization request. If that request had no
        redirect URI, the token request may have one that is `registered`.
        """
        ...

    async def session_started_by(self, code_hash: bytes, service: ServiceContext | None) -> UUID | None:
        """Return the session that this code was redeemed for, or None if it is unused."""
        ...


# Device codes


class DeviceCodesRead(Protocol):
    """Read access to the requests of devices."""

    async def by_user_code(self, user_code_hash: bytes) -> DeviceRequest | None:
        """Return the request with this user code, whatever its status."""
        ...


class DeviceCodes(DeviceCodesRead, Protocol):
    """Changes to the requests of devices. The user's account is locked before `decide` and `redeem`."""

    async def add(self, code: DeviceCode) -> bool:
        """Add the request. Return False if its user code is in use or its service is deleted."""
        ...

    async def decide(self, user_code_hash: bytes, status: DeviceRequestStatus, session_id: UUID | None, now: datetime) -> bool:
        """Set the status of a pending request, and the session of an approval.

        Return False if it is not pending. Atomic.
        """
        ...

    async def redeem(self, device_code_hash: bytes, service: ServiceContext, now: datetime) -> bool:
        """Use up an approved request that has not expired.

        Return False if there is none. Atomic.
        """
        ...


class DevicePolls(Protocol):
    """Polls of devices (security V-4)."""

    async def poll(self, device_code_hash: bytes, client_id: UUID | None, challenge: str | None, now: datetime) -> DevicePoll | None:
        """Count a poll, and return the request as it was before. Atomic.

        `client_id` and the verifier's S256 `challenge` are None if the device sent none. An early
        poll lengthens the interval. A poll that does not match the request counts as a failure of
        the code.
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

    async def setup_by_slug(self, org_slug: str, service_slug: str) -> SamlSetup | None:
        """Return configuration and certificate of a service, or None if it does not exist.

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

    async def deactivate_certificate(self, org_id: UUID, service_id: UUID, now: datetime) -> bool:
        """Deactivate the active certificate and delete its key. Return whether there was one."""
        ...

    async def add_certificate(self, org_id: UUID, service_id: UUID, certificate: SamlCertificate) -> None:
        """Add the active certificate of a service that has none.

        The service belongs to the organization.
        """
        ...

    async def setup_by_id(self, org_id: UUID, service_id: UUID) -> SamlSetup | None:
        """Return configuration and certificate, as `setup_by_slug` does. This needs no lock."""
        ...


# SAML sign-on


class SamlSignOnsRead(Protocol):
    """Read access to sign-ons. A sign-on is pending until it is finished or expires."""

    async def find(self, org_id: UUID, service_id: UUID, state_hash: bytes, browser_hash: bytes, now: datetime) -> SamlSignOn | None:
        """Return the pending sign-on with this state, or None.

        It must have been started for this service in the browser with this cookie.
        """
        ...

    async def pending_service(self, state_hash: bytes, now: datetime) -> tuple[Service, ServiceContext] | None:
        """Return the service of the pending sign-on with this state, or None.

        The browser and the status of the organization do not matter.
        """
        ...

    async def fresh_login_since(self, state_hash: bytes, now: datetime) -> datetime | None:
        """Return when the pending sign-on with this state started, or None.

        None also means that it does not require a fresh login.
        """
        ...


class SamlSignOns(SamlSignOnsRead, Protocol):
    """Changes to sign-ons, and the names by which services know users."""

    async def add(self, sign_on: SamlSignOn) -> bool:
        """Add the sign-on.

        Return False if the service used its request id before, or is deleted.
        """
        ...

    async def complete_login(
        self, state_hash: bytes, user_id: UUID, session_id: UUID, ticket_hash: bytes, now: datetime
    ) -> tuple[UUID, str, str] | None:
        """Attach a sign-in through the API to the pending sign-on with this state.

        Return the organization's id and slug and the service's slug, or None if no sign-on is
        pending.
        """
        ...

    async def record_fresh_login(self, state_hash: bytes, user_id: UUID) -> None:
        """Record a fresh login of this user at an identity provider for this sign-on, if any."""
        ...

    async def finish(self, org_id: UUID, service_id: UUID, state_hash: bytes, now: datetime) -> bool:
        """Finish the pending sign-on, so that it gets one response only.

        Exactly one of several callers gets True.
        """
        ...

    async def reopen(self, org_id: UUID, service_id: UUID, state_hash: bytes) -> None:
        """Make the sign-on pending again, because its response was not sent."""
        ...

    def lock_user_deferred(self, org_id: UUID, service_slug: str, user_id: UUID, session_id: UUID, now: datetime) -> SignOnLocks:
        """Lock the user's membership and account with the next statement.

        The session and the end user are read under these locks.
        """
        ...

    async def persistent_name_id(self, org_id: UUID, service_id: UUID, user_id: UUID, new: str, now: datetime) -> str:
        """Return the persistent name of this user at the service.

        Store `new` if the user has none yet.
        """
        ...

    async def add_session(
        self, session_id: UUID, org_id: UUID, service_id: UUID, session_index: str, name_id: NameId, now: datetime
    ) -> str:
        """Record that the browser session signs its user in to the service.

        Return the session index, that of the first time.
        """
        ...


# SAML single logout


class SamlLogouts(Protocol):
    """The SAML sessions of browser sessions, and logouts in progress.

    A logout lasts until it expires, even if its services or the account are deleted.
    """

    async def sessions(self, session_id: UUID) -> list[SamlSession]:
        """Return the SAML sessions of a browser session, the oldest first."""
        ...

    async def delete_sessions(self, session_id: UUID) -> None:
        """Delete the SAML sessions of a browser session."""
        ...

    async def move_sessions(self, browser_hash: bytes, to_session_id: UUID) -> None:
        """Move the SAML sessions of a browser session to another session of the same user.

        The browser session with this cookie may have ended.
        """
        ...

    async def add(self, logout: SamlLogout) -> bool:
        """Add the logout. Return False if the initiating service is deleted."""
        ...

    async def lock(self, browser_hash: bytes, now: datetime) -> SamlLogout | None:
        """Lock and return the logout in progress in the browser with this cookie."""
        ...

    async def change_initiator(self, logout: SamlLogout) -> None:
        """Store the initiator and the expiry of this logout."""
        ...

    async def mark_partial(self, logout_id: UUID) -> None:
        """Record that the user may still be signed in somewhere."""
        ...

    async def add_request(self, logout_id: UUID, request_id: str, user_id: UUID, session: SamlSession, done_at: datetime | None) -> bool:
        """Add a LogoutRequest to send, or one that the service has made unnecessary at `done_at`.

        Return False if it is deleted.
        """
        ...

    async def requested_sessions(self, logout_id: UUID) -> list[SamlSession]:
        """Return the sessions of all requests of this logout, sent or not."""
        ...

    async def mark_done(self, logout_id: UUID, session: SamlSession, now: datetime) -> None:
        """Record that the service ended this session itself, so that it needs no request."""
        ...

    async def next_request(self, logout_id: UUID, now: datetime) -> tuple[str, SamlSession] | None:
        """Return the next request to send, and count it as sent.

        Each request is sent once, and a second time, before the others, if it has no answer.
        """
        ...

    async def last_request(self, logout_id: UUID) -> tuple[str, SamlSession] | None:
        """Return the request that was sent last, or None if it is answered."""
        ...

    async def record_response(
        self, browser_hash: bytes, org_id: UUID, service_id: UUID, request_id: str, now: datetime, *, is_success: bool
    ) -> bool:
        """Record the service's response to a request that this browser delivered.

        Return False if no such request waits for one.
        """
        ...

    async def is_answered(self, logout_id: UUID, org_id: UUID, service_id: UUID, request_id: str) -> bool:
        """Return whether this request of the logout was sent to the service and is answered."""
        ...

    async def delete(self, logout_id: UUID) -> bool:
        """Delete the logout.

        Return whether it was partial: a service could not be told, or did not confirm.
        """
        ...


# Sign-in at identity providers


class ProviderStates(Protocol):
    """Browsers that were sent to identity providers, by the state with which they must return."""

    async def add(self, pending: ProviderState) -> bool:
        """Add the state. Return False if its service is deleted or its session has ended."""
        ...


class ProviderReturns(Protocol):
    """Browsers that return from identity providers."""

    async def take(self, state_hash: bytes, browser_hash: bytes, provider: Provider, now: datetime) -> ProviderState | None:
        """Use up the state that this browser started for this provider.

        Exactly one of several callers gets it.
        """
        ...


# The repositories of this area, by the kind of access


class FederationReading(Protocol):
    """Read access to the repositories of federation."""

    @property
    def authorization_codes(self) -> AuthorizationCodesRead: ...
    @property
    def device_codes(self) -> DeviceCodesRead: ...
    @property
    def saml(self) -> SamlRead: ...
    @property
    def saml_sign_ons(self) -> SamlSignOnsRead: ...


class FederationTransaction(Protocol):
    """The repositories of federation in a transaction."""

    @property
    def authorization_codes(self) -> AuthorizationCodes: ...
    @property
    def device_codes(self) -> DeviceCodes: ...
    @property
    def provider_states(self) -> ProviderStates: ...
    @property
    def saml(self) -> Saml: ...
    @property
    def saml_logouts(self) -> SamlLogouts: ...
    @property
    def saml_sign_ons(self) -> SamlSignOns: ...


class FederationAutocommit(Protocol):
    """The statements of federation that commit by themselves."""

    @property
    def device_codes(self) -> DevicePolls: ...
    @property
    def provider_states(self) -> ProviderReturns: ...
