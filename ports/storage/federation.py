"""Storage of the area federation."""

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

# oauth: What is asked of storage about authorization codes.


class AuthorizationCodesRead(Protocol):
    """Codes that applications exchange for tokens, looked at; they are kept as SHA-256. `service` is whose the code has to be, None for the
    platform's frontend: one of another application is unknown."""

    async def find(self, code_hash: bytes, service: ServiceContext | None) -> IssuedCode | None:
        """Whose this code is, whatever became of it."""
        ...


class AuthorizationCodes(AuthorizationCodesRead, Protocol):
    """The same, changed. The account is locked before."""

    async def add(self, code: AuthorizationCode, code_hash: bytes) -> bool:
        """Add it, unless its service is gone; whether it was added."""
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
        """Use the code up for this session, if it has not expired or been used, if the session of the browser lives that it was given to,
        and if redirect URI and challenge are those that it was given for; whether it was. Atomic.

        Where it was given for a redirect URI that nobody named, one may be named still that is `registered`.
        """
        ...

    async def session_started_by(self, code_hash: bytes, service: ServiceContext | None) -> UUID | None:
        """The session that this code was used for."""
        ...


# device_flow: What is asked of storage about devices that wait to be signed in.


class DeviceCodesRead(Protocol):
    """Requests of devices that wait for somebody to sign them in (core/device_flow.py), looked at."""

    async def by_user_code(self, user_code_hash: bytes) -> DeviceRequest | None:
        """The request with this user code, whatever became of it."""
        ...


class DeviceCodes(DeviceCodesRead, Protocol):
    """The same, changed. The account of whoever does it, or whom it signs in, is locked before all but `add`."""

    async def add(self, code: DeviceCode) -> bool:
        """Add it, with nothing known of polls, unless there is another one with its user code, or its service is gone; whether it was
        added."""
        ...

    async def decide(self, user_code_hash: bytes, status: DeviceRequestStatus, session_id: UUID | None, now: datetime) -> bool:
        """Approve it in this session, or deny it in none, if it waits still; whether it did. Atomic."""
        ...

    async def redeem(self, device_code_hash: bytes, service: ServiceContext, now: datetime) -> bool:
        """Use up an approval for this service that has not expired; whether it was there to be used. Atomic."""
        ...


class DevicePolls(Protocol):
    """Polls of devices (security.md V-4)."""

    async def poll(self, device_code_hash: bytes, client_id: UUID | None, challenge: str | None, now: datetime) -> DevicePoll | None:
        """Count a poll with this client id, None if none was sent, and the S256 challenge of the verifier, None if none was sent; and find
        the request as it was before. Atomic.

        One that comes before the interval is over makes it longer, and one that does not fit is an error of the code.
        """
        ...


# saml: What is asked of storage about identity providers of services (SAML).


class SamlRead(Protocol):
    """The identity providers of services, looked at. The key of a certificate stays sealed until
    it is asked for, which may raise SealBroken."""

    async def configuration(self, org_id: UUID, service_id: UUID) -> SamlConfiguration | None: ...

    async def certificate(self, org_id: UUID, service_id: UUID) -> SamlCertificate | None:
        """The active one."""
        ...

    async def setup_by_slug(self, org_slug: str, service_slug: str) -> SamlSetup | None:
        """All of it, whatever the status of the organization; None if there is no such service."""
        ...


class Saml(SamlRead, Protocol):
    """The same, changed. The organization is locked before a configuration or a certificate is."""

    async def configure(self, org_id: UUID, service_id: UUID, configuration: SamlConfiguration, now: datetime) -> None:
        """In the place of what the service has. The service is the organization's."""
        ...

    async def disable(self, org_id: UUID, service_id: UUID, now: datetime) -> bool:
        """Whether it was enabled."""
        ...

    async def deactivate_certificate(self, org_id: UUID, service_id: UUID, now: datetime) -> bool:
        """End the active one, and forget its key; whether there was one."""
        ...

    async def add_certificate(self, org_id: UUID, service_id: UUID, certificate: SamlCertificate) -> None:
        """As the active one, when there is no other. The service is the organization's."""
        ...

    async def setup_by_id(self, org_id: UUID, service_id: UUID) -> SamlSetup | None:
        """All of how a service is set up that somebody is being signed out of."""
        ...


# saml_sign_on: What is asked of storage about sign-ons (SAML).


class SamlSignOnsRead(Protocol):
    """What services have asked browsers to sign in for, looked at."""

    async def find(self, org_id: UUID, service_id: UUID, state_hash: bytes, browser_hash: bytes, now: datetime) -> SamlSignOn | None:
        """The sign-on that waits with this state, if it was begun for this service in the browser with this cookie."""
        ...

    async def pending_service(self, state_hash: bytes, now: datetime) -> tuple[Service, ServiceContext] | None:
        """The service of the sign-on that waits with this state, wherever it was begun and whatever the status of the organization."""
        ...

    async def fresh_login_since(self, state_hash: bytes, now: datetime) -> datetime | None:
        """When the sign-on that waits with this state was begun, if it asks for a fresh sign-in."""
        ...


class SamlSignOns(SamlSignOnsRead, Protocol):
    """The same, changed; and by what services know people."""

    async def add(self, sign_on: SamlSignOn) -> bool:
        """Keep it, unless the service has used the id of its request before, or is not there any more; whether it was kept."""
        ...

    async def complete_login(
        self, state_hash: bytes, user_id: UUID, session_id: UUID, ticket_hash: bytes, now: datetime
    ) -> tuple[UUID, str, str] | None:
        """Somebody has signed in for the sign-on that waits with this state: the organization, its slug, and that of the service.

        None where none waits.
        """
        ...

    async def record_fresh_login(self, state_hash: bytes, user_id: UUID) -> None:
        """An identity provider has vouched afresh for this person, and for nobody else, for the sign-on with this state, if any."""
        ...

    async def finish(self, org_id: UUID, service_id: UUID, state_hash: bytes, now: datetime) -> bool:
        """Nobody gets another answer. Exactly one caller wins."""
        ...

    async def reopen(self, org_id: UUID, service_id: UUID, state_hash: bytes) -> None:
        """It waits again, since nobody got the answer."""
        ...

    def lock_user_deferred(self, org_id: UUID, service_slug: str, user_id: UUID, session_id: UUID, now: datetime) -> SignOnLocks:
        """Lock the person's membership and their account before the next statement, and see then whether the session lives and whether
        they are an end user of the service."""
        ...

    async def persistent_name_id(self, org_id: UUID, service_id: UUID, user_id: UUID, new: str, now: datetime) -> str:
        """What the service knows this person by; `new` from now on, if it has known them by nothing."""
        ...

    async def add_session(self, session_id: UUID, org_id: UUID, service_id: UUID, session_index: str, name_id: NameId, now: datetime) -> str:
        """A browser's session signs somebody in to the service; under which index, which is the one of the first time."""
        ...


# saml_logout: What is asked of storage about single logout (SAML).


class SamlLogouts(Protocol):
    """Where sessions of browsers have signed people in to; and logouts under way, which last until they expire, whatever becomes of the
    services and of the account."""

    async def sessions(self, session_id: UUID) -> list[SamlSession]:
        """Where a browser's session has signed somebody in to, the first service first."""
        ...

    async def delete_sessions(self, session_id: UUID) -> None: ...

    async def move_sessions(self, browser_hash: bytes, now_in: UUID) -> None:
        """What was the session's that the cookie with this hash stands for, live or not, is this one's now, if both are one person's."""
        ...

    async def add(self, logout: SamlLogout) -> bool:
        """Keep it, unless the service that asks is not there any more; whether it was kept."""
        ...

    async def lock(self, browser_hash: bytes, now: datetime) -> SamlLogout | None:
        """The logout under way in the browser with this cookie, locked until the transaction ends."""
        ...

    async def change_initiator(self, logout: SamlLogout) -> None:
        """It has another asker, and expires at another time."""
        ...

    async def mark_partial(self, logout_id: UUID) -> None: ...

    async def add_request(self, logout_id: UUID, request_id: str, user_id: UUID, to: SamlSession, done_at: datetime | None) -> bool:
        """Have that service told of this person, or keep that it has signed them out already; False where it is not there any more."""
        ...

    async def requested_sessions(self, logout_id: UUID) -> list[SamlSession]:
        """Whom it is about: all that were told, or will be, or need not be."""
        ...

    async def mark_done(self, logout_id: UUID, part: SamlSession, now: datetime) -> None:
        """The service has ended that session itself, so it is not told of it, and no answer is waited for."""
        ...

    async def next_request(self, logout_id: UUID, now: datetime) -> tuple[str, SamlSession] | None:
        """The next one to send, with its id: each comes once, and once more while it is not answered, before the others."""
        ...

    async def last_request(self, logout_id: UUID) -> tuple[str, SamlSession] | None:
        """The one that was sent last, unless it was answered."""
        ...

    async def record_response(
        self, browser_hash: bytes, org_id: UUID, service_id: UUID, request_id: str, now: datetime, *, is_success: bool
    ) -> bool:
        """What the service says to a request that was sent with this browser; False where there is none that waits."""
        ...

    async def is_answered(self, logout_id: UUID, org_id: UUID, service_id: UUID, request_id: str) -> bool:
        """Whether this request was sent to the service for this logout, and is done."""
        ...

    async def delete(self, logout_id: UUID) -> bool:
        """Forget it; whether not everybody said that it was done, or could be told."""
        ...


# social: What is asked of storage about sign-ins that are under way at providers.


class ProviderStates(Protocol):
    """Browsers that were sent to identity providers, by the hash of the state that they have to come back with."""

    async def add(self, pending: ProviderState) -> bool:
        """Whether the service, or the live session, is there that it is for; else nothing is added."""
        ...


class ProviderReturns(Protocol):
    async def take(self, state_hash: bytes, browser_hash: bytes, provider: Provider, now: datetime) -> ProviderState | None:
        """Use the state up, in the browser in which it was made, and for this provider. Exactly one caller wins."""
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
