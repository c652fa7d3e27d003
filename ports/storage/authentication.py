"""Storage of the area authentication."""

from collections.abc import Collection
from datetime import datetime
from typing import Protocol
from uuid import UUID

from core.accounts.attempt_limits_rules import AttemptLimit
from core.accounts.devices_rules import Device, Location
from core.applications.end_users_rules import LinkedIdentity
from core.authentication.identities_rules import Identity, IdentityMatch, LinkTicket, ProviderToken, TokenRenewal
from core.authentication.login_rules import MfaAttempt, PendingSignIn
from core.authentication.oauth_credentials_rules import ServiceOAuthCredentials
from core.authentication.sessions_rules import (
    UNNAMED_PRESENTER,
    LiveSession,
    LiveSessions,
    Presenter,
    RefreshTokenState,
    RotatedSession,
    Session,
)
from core.authentication.signing_keys_rules import SigningKey
from core.kernel.principals import BrowserSession, SessionContext
from core.kernel.providers import Provider, ProviderClient, ProviderTokens
from core.kernel.values import Email, PageResult

# sessions: What is asked of storage about sessions.


class SessionsRead(Protocol):
    async def load_session_context(self, session_id: UUID, user_id: UUID, org_id: UUID | None, now: datetime) -> SessionContext | None:
        """Everything an authenticated request is judged by, or None unless session and account are live.

        A session of an impersonator lives only while that person is a platform owner whose own session, in which it was begun, lives,
        and while the impersonated one is no platform owner (I-3).
        """
        ...

    async def load_session_context_in(self, slug: str, session_id: UUID, user_id: UUID, org_id: UUID | None, now: datetime) -> SessionContext | None:
        """The same, with the organization of that slug, and what the person is in it, as `acts_in`."""
        ...

    async def load_application_session_context(self, client_id: UUID, session_id: UUID, user_id: UUID, now: datetime) -> SessionContext | None:
        """The same for a session of an application: its service, which has this client id and is there, and whether the person uses it."""
        ...

    async def load_browser_session(self, browser_hash: bytes, now: datetime) -> tuple[BrowserSession, SessionContext] | None:
        """The live session that a cookie with this hash stands for, and what `standing` would say of it without an organization."""
        ...

    async def load_start(self, session_id: UUID, user_id: UUID) -> tuple[datetime, UUID | None] | None:
        """When this session of the person began, and on which device, if that is known."""
        ...

    async def list_live(self, user_id: UUID, limit: int, now: datetime) -> PageResult[LiveSession]:
        """The person's live sessions, with those of applications and of impersonators, the newest first."""
        ...

    async def count_live_in(self, org_id: UUID, user_id: UUID, now: datetime) -> LiveSessions:
        """What `Sessions.end_in` would end."""
        ...


class Sessions(SessionsRead, Protocol):
    """Sessions and their refresh tokens, which are kept as SHA-256."""

    async def begin(self, session: Session, refresh_hash: bytes) -> None: ...

    async def begin_in_browser(self, session: Session, browser_hash: bytes) -> None:
        """A session without tokens, which the cookie with this hash stands for. Its context is no organization and no service."""
        ...

    async def ends_at(self, session_id: UUID, user_id: UUID, now: datetime) -> datetime | None:
        """When this session of the person ends in any case; None if it is not live."""
        ...

    async def presented(self, token_hash: bytes, now: datetime, by: Presenter = UNNAMED_PRESENTER) -> RefreshTokenState | None:
        """What is known of a refresh token that was not rotated."""
        ...

    async def revoke(self, session_id: UUID | None, refresh_hash: bytes, by: Presenter, now: datetime) -> bool | None:
        """End this session, or that of this refresh token, be it the current one or not, if it is the presenter's to use; whether it is,
        None where there was none that had not ended."""
        ...

    async def end(self, session_id: UUID, now: datetime) -> None:
        """End the session; one that has ended stays as it is."""
        ...

    async def end_in_browser(self, browser_hash: bytes, now: datetime) -> None:
        """End the session that the cookie with this hash stands for, if it lives."""
        ...

    async def end_all(self, user_id: UUID, now: datetime) -> None: ...

    async def end_one(self, user_id: UUID, session_id: UUID, now: datetime) -> bool:
        """End this live session of the person; whether there was one."""
        ...

    async def end_others(self, user_id: UUID, kept: UUID, now: datetime) -> None: ...

    async def require_mfa_again(self, user_id: UUID, but: UUID) -> None:
        """The locked account's second factor was switched on in the session `but`: the person's own others miss it from now on."""
        ...

    async def end_impersonations(self, user_id: UUID, now: datetime) -> None:
        """End the sessions in which the person acts as somebody else, or somebody else as the person."""
        ...

    async def end_on_device(self, user_id: UUID, device_id: UUID, now: datetime) -> None:
        """End the person's live sessions on this device."""
        ...

    async def end_in_organization(self, org_id: UUID, user_ids: Collection[UUID], now: datetime) -> int:
        """End the live sessions of these people in this organization, those of its services too; how many they were (security.md S-4).

        Codes that its applications have not exchanged yet, and devices that wait to be let in, get none any more; who has signed in for a
        sign-on with SAML there, and has not gone on to it, does so again.
        """
        ...

    async def remove(self, user_id: UUID, service_id: UUID | None = None) -> None:
        """Remove the sessions of a locked account, or those of this service, with all that is known of their refresh tokens, and the codes
        that could still be exchanged for one.

        A few statements, the first of them until there is nothing more for it to do.
        """
        ...

    async def select_organization(self, session_id: UUID, org_id: UUID, new_hash: bytes, now: datetime, expires_at: datetime) -> datetime | None:
        """Give the live session this organization as its context and another refresh token, and rotate the current one out.

        It then lives until `expires_at`, but never past its absolute end, which is returned; None if it is not live any more, or if its
        refresh token was rotated at this very moment.
        """
        ...


class Rotation(Protocol):
    async def rotate(
        self, old_hash: bytes, new_hash: bytes, now: datetime, expires_at: datetime, by: Presenter = UNNAMED_PRESENTER
    ) -> RotatedSession | None:
        """Replace a refresh token, if it is the current one of a live session whose person and organization are in good standing, and the
        presenter's to use.

        The session then lives until `expires_at`, but never past its absolute end. Exactly one caller wins.
        """
        ...


# logins: What is asked of storage about logins.


class Logins(Protocol):
    """The lasting record of logins (identity.md section 2.8)."""

    async def succeeded(self, session: Session, provider: str, device: Device | None = None) -> None:
        """The login that began this session, how risky it was and where it came from, as the device says.

        One to a service also counts in the totals of its day.
        """
        ...

    async def remove(self, user_id: UUID, service_id: UUID | None = None) -> None:
        """Remove the record of the person's logins, or of those to this service. Also counts them out."""
        ...


class FailedLogins(Protocol):
    async def failed(
        self, user_id: UUID, provider: str, now: datetime, address: str | None, agent: str | None, location: Location | None = None
    ) -> None:
        """Recorded without waiting for the disk: a known account must not answer later than an unknown one (security.md B-2)."""
        ...


# pre_auths: What is asked of storage about sign-ins that wait for a second factor.


class PreAuths(Protocol):
    """Sign-ins that wait for the second factor; what ends them well is `Mfa.accept_step` or `accept_code`. The account is locked before any
    of these."""

    async def add(self, pending: PendingSignIn) -> None:
        """The tokens of what is to be linked are sealed."""
        ...

    async def remove_all(self, user_id: UUID) -> None:
        """None of the person's can be continued any more."""
        ...


class Tries(Protocol):
    """Tries at the second factor of one sign-in (security.md J-8)."""

    async def count_attempt(
        self, pre_auth_id: UUID, user_id: UUID, tries: int, subject: bytes, attempt_limit: AttemptLimit, now: datetime
    ) -> MfaAttempt | None:
        """Count one more try at a sign-in of this person that waits, and one more guess at their second factor, as `Guesses.charge` does at
        `subject`; and find what the code is compared with. Atomic.

        None, and nothing counted, where there were so many tries, or the sign-in has ended; nor is a try that must wait. Raises SealBroken.
        """
        ...


# signing_keys: What is asked of storage about signing keys.


class SigningKeysRead(Protocol):
    async def live(self, now: datetime) -> list[SigningKey]:
        """Keys that are believed now, newest first."""
        ...


class SigningKeys(SigningKeysRead, Protocol):
    async def lock(self) -> None:
        """Make others who would rotate wait."""
        ...

    async def has_active(self) -> bool: ...

    async def add(self, key: SigningKey) -> None:
        """Also tells all processes, when the transaction commits."""
        ...

    async def retire_all(self, retires_at: datetime) -> None: ...


# identities: What is asked of storage about identities at providers.


class IdentitiesRead(Protocol):
    """Accounts at external providers that people have linked, looked at: in the account itself, or in the service `service_id`."""

    async def list_of_user(self, user_id: UUID, service_id: UUID | None) -> list[LinkedIdentity]:
        """The longest linked first."""
        ...

    async def list_providers(self, user_id: UUID) -> list[Provider]:
        """Those at which the person has linked an account anywhere, in the account itself or in whatever service."""
        ...

    async def load_provider_token(self, user_id: UUID, service_id: UUID | None, provider: Provider) -> ProviderToken | None:
        """What the provider gave, expired or not. Raises SealBroken."""
        ...


class Identities(IdentitiesRead, Protocol):
    """The same, changed. The account is locked before any of these but those that say otherwise."""

    async def lock_subject(self, provider: Provider, issuer: str, subject: str) -> None:
        """Make others wait who come from the provider as the same person. It comes before every other lock."""
        ...

    async def match(self, provider: Provider, issuer: str, subject: str, service_id: UUID | None) -> IdentityMatch | None:
        """Whom this is known as in this context, or else in any. `lock_subject` comes before; the account need not be locked."""
        ...

    async def add(self, identity: Identity) -> bool:
        """Its tokens are sealed. False, and nothing added, where there is one of this provider for the person in this context, or the
        service is gone."""
        ...

    async def update_tokens(self, identity_id: UUID, email: Email | None, tokens: ProviderTokens) -> None:
        """Keep these tokens in the place of those that are there; an address or a refresh token that is not given stays."""
        ...

    async def claim_renewal(self, user_id: UUID, service_id: UUID | None, provider: Provider, now: datetime, until: datetime) -> TokenRenewal | None:
        """Leave to renew what has expired, and has a refresh token; None where somebody else has that leave. The account need not be
        locked, nor for the next two. Raises SealBroken."""
        ...

    async def complete_renewal(self, claim: TokenRenewal, tokens: ProviderTokens) -> bool:
        """Keep these, unless others have come in their place meanwhile; whether they were kept."""
        ...

    async def release_renewal(self, claim: TokenRenewal) -> None:
        """Others may try."""
        ...

    async def consume_ticket(self, token_hash: bytes, provider: Provider, now: datetime) -> LinkTicket | None:
        """Use the ticket up. Exactly one caller wins. The account need not be locked."""
        ...

    async def add_ticket(self, ticket: LinkTicket) -> bool:
        """Whether its session is live; else nothing is added."""
        ...

    async def remove_all(self, user_id: UUID) -> None:
        """Those of the account itself, and those of services."""
        ...

    async def remove(self, user_id: UUID, service_id: UUID, provider: Provider) -> bool:
        """That of the service; whether there was one."""
        ...

    async def remove_everywhere(self, user_id: UUID, provider: Provider) -> list[UUID | None]:
        """Those of all contexts; which these were, None for the account itself."""
        ...


# oauth_credentials: What is asked of storage about credentials at providers.


class OAuthCredentialsRead(Protocol):
    """What services are known by at identity providers, looked at. The secrets are sealed."""

    async def find(self, org_id: UUID, service_id: UUID, provider: Provider) -> ServiceOAuthCredentials | None: ...

    async def load_client(self, org_id: UUID, service_id: UUID, provider: Provider) -> ProviderClient | None:
        """The same with the secret. Raises SealBroken."""
        ...

    async def list_providers(self, org_id: UUID, service_id: UUID) -> list[Provider]:
        """At which this service has any."""
        ...


class OAuthCredentials(OAuthCredentialsRead, Protocol):
    """The same, changed. The organization is locked before any of these."""

    async def put(self, org_id: UUID, service_id: UUID, credentials: ServiceOAuthCredentials, client_secret: str) -> None:
        """In the place of those that the service has at this provider. The service is the organization's."""
        ...

    async def remove(self, org_id: UUID, service_id: UUID, provider: Provider) -> bool:
        """Whether there were any."""
        ...


# The repositories of this area, by the kind of access


class AuthenticationReading(Protocol):
    """Read access to the repositories of authentication."""

    @property
    def identities(self) -> IdentitiesRead: ...
    @property
    def oauth_credentials(self) -> OAuthCredentialsRead: ...
    @property
    def sessions(self) -> SessionsRead: ...
    @property
    def signing_keys(self) -> SigningKeysRead: ...


class AuthenticationTransaction(Protocol):
    """The repositories of authentication in a transaction."""

    @property
    def identities(self) -> Identities: ...
    @property
    def logins(self) -> Logins: ...
    @property
    def oauth_credentials(self) -> OAuthCredentials: ...
    @property
    def pre_auths(self) -> PreAuths: ...
    @property
    def sessions(self) -> Sessions: ...
    @property
    def signing_keys(self) -> SigningKeys: ...


class AuthenticationAutocommit(Protocol):
    """The statements of authentication that commit by themselves."""

    @property
    def logins(self) -> FailedLogins: ...
    @property
    def pre_auths(self) -> Tries: ...
    @property
    def sessions(self) -> Rotation: ...
