"""Storage of sessions, logins, pending sign-ins, signing keys, linked identities and OAuth credentials.

The module is longer than 400 lines because each area has one storage module (docs/adr/0018).
"""

from collections.abc import Collection
from datetime import datetime
from typing import Protocol
from uuid import UUID

from core.accounts.model.attempt_limits import AttemptLimit
from core.accounts.model.devices import Device, KnownBy, Location
from core.accounts.model.profiles import OwnProfile
from core.accounts.model.security_notices import AddedSignInMethod
from core.applications.model.users import LinkedIdentity
from core.authentication.model.dpop import NonceKey
from core.authentication.model.identities import (
    Identity,
    IdentityMatch,
    ProviderTicket,
    ProviderToken,
    ServiceOAuthCredentials,
    TokenRenewal,
)
from core.authentication.model.login import EmailCodeAttempt, EmailSignIn, MfaAttempt, PendingSignIn
from core.authentication.model.openid import OpenIdGrant, UserFacts
from core.authentication.model.personal_tokens import MemberPersonalToken, PersonalToken, PersonalTokenRecord
from core.authentication.model.reauthentication import EmailedCode, KeptForm, PendingReauthentication, Reauthentication
from core.authentication.model.sessions import (
    UNNAMED_PRESENTER,
    IntrospectedSession,
    LiveSession,
    LiveSessions,
    Presenter,
    RefreshTokenState,
    RotatedSession,
    Session,
)
from core.authentication.model.signing_keys import SigningKey
from core.kernel.callers import BrowserSession, SessionContext
from core.kernel.causes import Caller
from core.kernel.deferred import Deferred
from core.kernel.providers import Provider, ProviderClient, ProviderTokens
from core.kernel.values import Email, Page, PageResult


class SessionsRead(Protocol):
    """Read access to sessions."""

    async def load_session_context(self, session_id: UUID, user_id: UUID, org_id: UUID | None, now: datetime) -> SessionContext | None:
        """Return all facts for the authorization of a request, or None if the session or the account is not live.

        An impersonation is live only while three conditions hold: the impersonator is a platform
        owner; the session in which the impersonator started it is live; the impersonated user is
        not a platform owner (security I-3).
        """
        ...

    async def load_session_context_in(
        self, slug: str, session_id: UUID, user_id: UUID, org_id: UUID | None, now: datetime
    ) -> SessionContext | None:
        """Return the facts of `load_session_context`, and in `acts_in` the organization of `slug` with the user's role."""
        ...

    async def load_application_session_context(
        self, client_id: UUID, session_id: UUID, user_id: UUID, now: datetime
    ) -> SessionContext | None:
        """Return the facts of a session of the application with this client id, and whether the user still uses its service."""
        ...

    async def load_with_profile(
        self, client_id: UUID | None, session_id: UUID, user_id: UUID, org_id: UUID | None, now: datetime
    ) -> tuple[SessionContext, OwnProfile] | None:
        """Return the facts of `load_session_context`, or with a client id those of `load_application_session_context`, and the profile."""
        ...

    async def load_userinfo(
        self, client_id: UUID | None, session_id: UUID, user_id: UUID, now: datetime
    ) -> tuple[SessionContext, OpenIdGrant, UserFacts, bool] | None:
        """Return a live session of OpenID Connect, its grant, the current facts about its user, and whether its client authenticates.

        `client_id` is None for the platform's own frontend, which does not.
        """
        ...

    async def introspect(
        self, service_id: UUID | None, session_id: UUID | None, refresh_hash: bytes, now: datetime, *, api_resource_id: UUID | None = None
    ) -> IntrospectedSession | None:
        """Return the live session with this id, or else with this refresh token, which must not be used yet.

        The session must be of this service or, if `api_resource_id` is given, of this API resource. Its
        organization must be active, and its user allowed to use the service, and the API resource if
        it has one.
        """
        ...

    async def grant_of_refresh_token(self, token_hash: bytes) -> OpenIdGrant | None:
        """Return the grant of the session of this token: NO_GRANT without OpenID Connect and API, or None if the token is unknown."""
        ...

    async def load_browser_session(self, browser_hash: bytes, now: datetime) -> tuple[BrowserSession, SessionContext] | None:
        """Return the live session of the cookie with this hash, and its facts. They contain no organization."""
        ...

    async def load_impersonation(self, session_id: UUID, now: datetime) -> tuple[UUID, SessionContext] | None:
        """Return the id and the facts of the newest live impersonation that was started in this session. They contain no organization."""
        ...

    async def load_start(self, session_id: UUID, user_id: UUID) -> tuple[datetime, UUID | None, bool] | None:
        """Return the start of this session of the user in UTC, the id of its device if known, and whether it used the second factor."""
        ...

    async def browser_of(self, session_id: UUID, user_id: UUID) -> UUID | None:
        """Return the browser session that this session is or that authorized it, or None if it belongs to no browser."""
        ...

    async def load_factors(self, session_id: UUID, user_id: UUID) -> BrowserSession | None:
        """Return how the user signed in to this session of any kind, in the form of a browser session. The session may have ended."""
        ...

    async def user_facts(self, user_id: UUID, service_id: UUID, now: datetime) -> UserFacts | None:
        """Return the facts for the claims of this user at this service, or None if the user does not exist."""
        ...

    async def is_of_browser(self, session_id: UUID, user_id: UUID, client_id: UUID | None, browser_hash: bytes) -> bool:
        """Return whether the user authorized this session of the client in the browser with this cookie. Either session may have ended.

        `client_id` is None for the platform's own frontend.
        """
        ...

    async def list_live(self, user_id: UUID, limit: int, now: datetime) -> PageResult[LiveSession]:
        """Return the user's newest live sessions, and the number of all live ones.

        Sessions of applications and impersonators are included, those of personal access tokens are not.
        """
        ...

    async def count_live_in(self, org_id: UUID, user_id: UUID, now: datetime) -> LiveSessions:
        """Count the sessions that `Sessions.end_in_organization` would end, without those of personal access tokens."""
        ...


class Sessions(SessionsRead, Protocol):
    """Write access to sessions and their refresh tokens, which are stored as SHA-256.

    The end of a browser session also ends the applications' sessions of OpenID Connect that the
    user authorized in it, except those with offline access. The caller holds the lock on the
    account: otherwise the exchange of a code at the same time could add one more.
    """

    def user_facts_deferred(self, user_id: UUID, service_id: UUID | None, now: datetime) -> Deferred[UserFacts]:
        """Read the facts for an ID token with the next statement. There are none if the user does not exist."""
        ...

    async def begin(self, session: Session, refresh_hash: bytes) -> None:
        """Add a session with its first refresh token."""
        ...

    async def begin_in_browser(self, session: Session, browser_hash: bytes) -> None:
        """Add a browser session: it has a cookie with this hash, but no tokens, no organization and no service."""
        ...

    async def ends_at(self, session_id: UUID, user_id: UUID, now: datetime) -> datetime | None:
        """Return the absolute end of this session of the user, or None if it is not live."""
        ...

    async def explain_refresh_token(
        self, token_hash: bytes, now: datetime, presenter: Presenter = UNNAMED_PRESENTER
    ) -> RefreshTokenState | None:
        """Return the facts that explain why a refresh token was not rotated, or None if it is unknown."""
        ...

    async def revoke(self, session_id: UUID | None, refresh_hash: bytes, presenter: Presenter, now: datetime) -> bool | None:
        """End this session, or the session of this refresh token, current or not, if the presenter may use its tokens.

        Return whether it may, or None if there is no such session or it has already ended.
        """
        ...

    async def end(self, session_id: UUID, now: datetime) -> None:
        """End this session. A session that has already ended keeps its end."""
        ...

    async def replace_in_browser(self, browser_hash: bytes, successor: UUID, now: datetime) -> None:
        """End the browser session of the cookie with this hash, if it has not ended. The session `successor` replaces it.

        If both are of the same user, the applications' sessions that the user authorized in the old
        one move to the new one. This takes two statements, of which the first locks the account.
        """
        ...

    async def end_all(self, user_id: UUID, now: datetime) -> None:
        """End all sessions of the user."""
        ...

    async def end_one(self, user_id: UUID, session_id: UUID, now: datetime) -> bool:
        """End this live session of the user. Return whether there was one. A personal access token does not count as a session."""
        ...

    async def end_others(self, user_id: UUID, kept: UUID, now: datetime) -> None:
        """End all sessions of the user except `kept`."""
        ...

    async def end_personal_tokens(self, user_id: UUID, now: datetime) -> None:
        """End all personal access tokens of the user."""
        ...

    async def require_mfa_again(self, user_id: UUID, except_session_id: UUID) -> None:
        """Mark the user's own sessions except this one as missing the second factor. Lock the account first.

        Call this when the user enables the second factor in the session `except_session_id`.
        """
        ...

    async def reauthenticate(self, session_id: UUID, user_id: UUID, sign_in: Reauthentication) -> None:
        """Store a reauthentication as the last sign-in of the session. Lock the account first."""
        ...

    async def begin_impersonation_in(self, session_id: UUID, org_id: UUID) -> datetime | None:
        """Store that an impersonation acts in this organization. Return the end of its session in UTC, or None if this was stored before.

        Raises: OrganizationNotFound.
        """
        ...

    async def end_impersonations(self, user_id: UUID, now: datetime) -> None:
        """End the sessions in which the user impersonates others, and those in which others impersonate the user."""
        ...

    async def end_on_device(self, user_id: UUID, device_id: UUID, now: datetime) -> None:
        """End the user's live sessions on this device."""
        ...

    async def end_in_organization(self, org_id: UUID, user_ids: Collection[UUID], now: datetime) -> int:
        """End the live sessions of these users in this organization and its services, and return their number (security S-4).

        This also ends their personal access tokens for the organization, which are not counted,
        authorization codes that were not exchanged, device approvals, and the sign-ins of pending SAML
        sign-ons.
        """
        ...

    async def end_consented(self, org_id: UUID, service_id: UUID, user_id: UUID, now: datetime) -> None:
        """End the sessions that this user has at this service of this organization, if they have a scope that the user agreed to.

        This also ends authorization codes and device approvals that would start such sessions.
        """
        ...

    async def end_without_access(self, org_id: UUID, service_id: UUID, user_ids: Collection[UUID] | None, now: datetime) -> None:
        """End the sessions of OpenID Connect at this service that may not use it now: of these users, or of all if `user_ids` is None.

        They may not if the user has no access, or if they lack a second factor that the service requires.
        """
        ...

    async def remove(self, user_id: UUID, now: datetime, service_id: UUID | None = None) -> None:
        """End and delete the sessions of a locked account, or those of one service, with their refresh tokens and unused codes.

        This takes several statements. The first one is repeated until it deletes nothing.
        """
        ...

    async def select_organization(
        self, session_id: UUID, org_id: UUID, new_hash: bytes, now: datetime, expires_at: datetime
    ) -> datetime | None:
        """Make this organization the context of a live session, and replace its current refresh token.

        The session then expires at `expires_at`, but not after its absolute end, which is returned.
        Return None if the session is not live, or if a concurrent request rotated its refresh
        token.
        """
        ...


class RefreshTokenRotation(Protocol):
    """The rotation of refresh tokens."""

    async def rotate(
        self, old_hash: bytes, new_hash: bytes, now: datetime, expires_at: datetime, presenter: Presenter = UNNAMED_PRESENTER
    ) -> RotatedSession | None:
        """Replace a current refresh token, or return None if it cannot be used now.

        A token can be used if three conditions hold: its session, user and organization are active;
        the user still is a member of the organization or may use the service; the presenter may use
        the token. The session then expires at `expires_at`, but not after its absolute end. Of
        several concurrent calls, exactly one succeeds. The token of a service with bound tokens only
        is not replaced, and so it can be used again.
        """
        ...


class Logins(Protocol):
    """Login records."""

    async def begin_session(self, session: Session, refresh_hash: bytes, device: Device | None) -> None:
        """Add the session of a login, as `Sessions.begin` does, and record the login, as `record_success` does."""
        ...

    async def begin_browser_session(self, session: Session, browser_hash: bytes, device: Device | None) -> None:
        """Add the browser session of a login, as `Sessions.begin_in_browser` does, and record the login."""
        ...

    async def record_success(self, session: Session, provider: str, device: Device | None = None) -> None:
        """Record the login that started this session, with the risk and the location of the device.

        A login to a service is also counted in the service's total of the day.
        """
        ...

    async def remove(self, user_id: UUID, service_id: UUID | None = None) -> None:
        """Delete the user's login records, or those of one service, and subtract them from the totals."""
        ...


class FailedLogins(Protocol):
    """Records of failed logins."""

    async def record_failure(
        self, user_id: UUID, provider: str, now: datetime, address: str | None, agent: str | None, location: Location | None = None
    ) -> None:
        """Record a failed login without waiting for the disk, so that the response time does not reveal the account (security B-2)."""
        ...


class PreAuths(Protocol):
    """Pending sign-ins. Callers lock the account before any method.

    `Mfa.redeem_step_deferred` and `Mfa.redeem_backup_code_deferred` use them up.
    """

    async def add(self, pending: PendingSignIn) -> None:
        """Add a pending sign-in. The tokens of its identity are encrypted."""
        ...

    async def remove_all(self, user_id: UUID) -> None:
        """Delete all pending sign-ins of the user."""
        ...


class MfaAttempts(Protocol):
    """The count of attempts at the second factor of a pending sign-in (security J-8)."""

    async def count_attempt(
        self, pre_auth_id: UUID, user_id: UUID, tries: int, subject: bytes, attempt_limit: AttemptLimit, now: datetime
    ) -> MfaAttempt | None:
        """Count one attempt at this pending sign-in and at the user's second factor, and return the data to check the code.

        This is atomic. Return None, and count nothing, if the pending sign-in has ended or has had
        `tries` attempts. An attempt that `attempt_limit` blocks is not counted either. `subject`
        has the same meaning as in `AttemptLimits`.

        Raises: SealBroken.
        """
        ...


class EmailSignInsRead(Protocol):
    """Read access to requests to sign in by email. They are found until they are used or expire."""

    async def by_request(self, request_hash: bytes, now: datetime) -> EmailSignIn | None:
        """Return the request of the browser with the secret of this hash."""
        ...

    async def by_link(self, link_hash: bytes, now: datetime) -> EmailSignIn | None:
        """Return the request of the email that has the link with this hash."""
        ...


class EmailSignIns(EmailSignInsRead, Protocol):
    """Write access to requests to sign in by email."""

    async def add(self, sign_in: EmailSignIn, request_hash: bytes) -> bool:
        """Add a request. Return False, and add nothing, if its service was deleted."""
        ...

    async def find(self, sign_in_id: UUID, now: datetime) -> tuple[EmailSignIn, str | None, str | None] | None:
        """Return a request with the name of its service and its code, if any. Raises: SealBroken."""
        ...

    async def issue(self, sign_in_id: UUID, user_id: UUID | None, link_hash: bytes | None, code: str) -> None:
        """Store the account, the link and the code of a request. The code is encrypted. Without an account, it opens nothing."""
        ...

    async def remove_older(self, email: Email, created_at: datetime) -> None:
        """Delete the requests for this address that were made before this time."""
        ...

    async def redeem(self, sign_in_id: UUID, now: datetime) -> bool:
        """Use up a request. Of several concurrent calls, exactly one returns True. Lock the account first."""
        ...

    async def void(self, user_id: UUID) -> None:
        """Delete the requests that led to an email to the user. Lock the account first."""
        ...


class EmailCodeAttempts(Protocol):
    """The count of attempts at the codes of sign-ins by email."""

    async def count_attempt(
        self, request_hash: bytes, in_browser: bool, known: KnownBy, tries: int, attempt_limit: AttemptLimit, now: datetime
    ) -> EmailCodeAttempt | None:
        """Count one attempt at this request and at its address, and return the data to check the code.

        If the account knows a device by these values, it is counted for that device, and not for the address.

        This is atomic. Return None, and count nothing, if the request was used, has expired or has had
        `tries` attempts. An attempt that `attempt_limit` blocks is not counted either.

        Raises: SealBroken.
        """
        ...


class SigningKeysRead(Protocol):
    """Read access to signing keys."""

    async def live(self, now: datetime) -> list[SigningKey]:
        """Return the keys that have not retired at this time, newest first."""
        ...


class SigningKeys(SigningKeysRead, Protocol):
    """Write access to signing keys."""

    async def lock(self) -> None:
        """Lock the choice of the active key until the transaction ends, so that concurrent rotations wait."""
        ...

    async def has_active(self) -> bool:
        """Return whether a key exists that is not retiring."""
        ...

    async def add(self, key: SigningKey) -> None:
        """Add a key, and notify all processes after the commit."""
        ...

    async def retire_all(self, retires_at: datetime) -> None:
        """Let all active keys retire at this time."""
        ...

    async def remove_all(self) -> None:
        """Delete all keys, also those that still verify. The caller adds one in the same transaction."""
        ...

    async def issuer(self) -> tuple[str | None, bool]:
        """Return the issuer of the last start, or None before the first start of a release that stores it; and whether any key exists."""
        ...

    async def set_issuer(self, url: str) -> None:
        """Store the issuer."""
        ...


class IdentitiesRead(Protocol):
    """Read access to linked identities. The context is the service with the id `service_id`, or the account itself if it is None."""

    async def find_ticket(self, token_hash: bytes, provider: Provider, now: datetime) -> ProviderTicket | None:
        """Return a ticket that can still be used."""
        ...

    async def list_of_user(self, user_id: UUID, service_id: UUID | None) -> list[LinkedIdentity]:
        """Return the user's identities in this context, oldest link first."""
        ...

    async def list_providers(self, user_id: UUID) -> list[Provider]:
        """Return the providers where the user has linked an account in any context."""
        ...

    async def list_added(self, user_id: UUID, since: datetime) -> list[AddedSignInMethod]:
        """Return the accounts at providers that were linked after the sign-up, oldest first. Those linked after `since` are recent."""
        ...

    async def load_provider_token(self, user_id: UUID, service_id: UUID | None, provider: Provider) -> ProviderToken | None:
        """Return the provider's access token, expired or not. Raises: SealBroken."""
        ...


class Identities(IdentitiesRead, Protocol):
    """Write access to linked identities. Callers lock the account first, unless a method says otherwise."""

    async def lock_subject(self, provider: Provider, issuer: str, subject: str) -> None:
        """Lock this subject of a provider, so that concurrent sign-ins of the same subject wait. Lock order: before every other lock."""
        ...

    async def match(self, provider: Provider, issuer: str, subject: str, service_id: UUID | None) -> IdentityMatch | None:
        """Return the identity of this subject in this context, or else in any other context, or None if there is none.

        Call `lock_subject` first. The account need not be locked.
        """
        ...

    async def add(self, identity: Identity) -> bool:
        """Link an identity, with its tokens encrypted.

        Return False, and link nothing, if the user already has an identity of this provider in the context, or if the service was deleted.
        """
        ...

    async def update_tokens(self, identity_id: UUID, email: Email | None, tokens: ProviderTokens) -> None:
        """Store new tokens. If `email` or the new refresh token is None, keep the stored one."""
        ...

    async def claim_renewal(
        self, user_id: UUID, service_id: UUID | None, provider: Provider, now: datetime, until: datetime
    ) -> TokenRenewal | None:
        """Take the lease to renew an expired token until `until`, or return None if another request holds it.

        The account need not be locked for this method and the next two.

        Raises: SealBroken.
        """
        ...

    async def complete_renewal(self, renewal: TokenRenewal, tokens: ProviderTokens) -> bool:
        """Store the renewed tokens, unless other tokens were stored since the lease was taken. Return whether they were stored."""
        ...

    async def release_renewal(self, renewal: TokenRenewal) -> None:
        """Release the lease, so that other requests can take it."""
        ...

    async def consume_ticket(self, token_hash: bytes, now: datetime) -> bool:
        """Use up a ticket. Of several concurrent calls, exactly one gets True. The account need not be locked."""
        ...

    async def add_ticket(self, ticket: ProviderTicket) -> bool:
        """Add a ticket if its session is live. Return whether it was added."""
        ...

    async def remove_all(self, user_id: UUID) -> None:
        """Unlink all identities of the user, in the account and in all services."""
        ...

    async def remove_added(self, user_id: UUID, identity_id: UUID) -> None:
        """Unlink the account at the provider that this identity belongs to, in the account and in all services."""
        ...

    async def remove_linked_since(self, user_id: UUID, since: datetime) -> list[Provider]:
        """Unlink the identities that were linked at that time or later, in the account and in all services. Return their providers."""
        ...

    async def remove(self, user_id: UUID, service_id: UUID, provider: Provider) -> bool:
        """Unlink the identity of a service. Return whether there was one."""
        ...

    async def remove_everywhere(self, user_id: UUID, provider: Provider, notice_id: UUID | None) -> list[UUID | None]:
        """Unlink the user's identities at this provider in all contexts. Return their service ids, with None for the account itself.

        The notice keeps them, without tokens, for `link_again`.
        """
        ...

    async def link_again(self, user_id: UUID, since: datetime) -> list[Provider]:
        """Link the identities again that were linked before `since` and unlinked then or later. Return their providers.

        Those that another account has in the same context are left out.
        """
        ...


class OAuthCredentialsRead(Protocol):
    """Read access to the credentials of services at identity providers. The secrets are encrypted."""

    async def find(self, org_id: UUID, service_id: UUID, provider: Provider) -> ServiceOAuthCredentials | None:
        """Return the credentials of a service at this provider, without the secret."""
        ...

    async def load_client(self, org_id: UUID, service_id: UUID, provider: Provider) -> ProviderClient | None:
        """Return the credentials with the secret. Raises: SealBroken."""
        ...

    async def list_providers(self, org_id: UUID, service_id: UUID) -> list[Provider]:
        """Return the providers where this service has credentials."""
        ...


class OAuthCredentials(OAuthCredentialsRead, Protocol):
    """Write access to the credentials. Callers lock the organization before any method."""

    async def put(self, org_id: UUID, service_id: UUID, credentials: ServiceOAuthCredentials, client_secret: str) -> None:
        """Set the credentials at this provider of a service of the organization."""
        ...

    async def remove(self, org_id: UUID, service_id: UUID, provider: Provider) -> bool:
        """Delete the credentials at this provider. Return whether there were any."""
        ...


# Personal access tokens


class PersonalTokensRead(Protocol):
    """Read access to personal access tokens. Only live ones are returned."""

    async def load_record(self, token_hash: bytes, slug: str | None, now: datetime) -> PersonalTokenRecord | None:
        """Return the token with this hash and all facts for the authorization of a request.

        `session.acts_in` is the organization of `slug` with the user's role, or None if there is none.
        """
        ...

    async def of_user(self, user_id: UUID, now: datetime) -> list[PersonalToken]:
        """Return the user's tokens, newest first."""
        ...

    async def page(self, org_id: UUID, page: Page, now: datetime) -> PageResult[MemberPersonalToken]:
        """Return a page of the tokens that act in the organization, newest first."""
        ...


class PersonalTokens(PersonalTokensRead, Protocol):
    """Write access to personal access tokens. Callers lock the account before `count_live`, `add` and `end`."""

    async def count_live(self, user_id: UUID, now: datetime) -> int: ...

    async def add(self, token: PersonalToken, token_hash: bytes, caller: Caller) -> None:
        """Add a token and the session that backs it, which stores the address and user agent of the caller."""
        ...

    async def user_in_organization(self, org_id: UUID, token_id: UUID, now: datetime) -> UUID | None:
        """Return the user of this token, if it acts in the organization."""
        ...

    async def end(self, user_id: UUID, token_id: UUID, now: datetime) -> PersonalToken | None:
        """End this token of the user and return it, or None if the user has no such token."""
        ...


class PersonalTokenUse(Protocol):
    """The record of the last use."""

    async def record_use(self, token_id: UUID, now: datetime, before: datetime) -> None:
        """Set the time of the last use, unless it is later than `before`."""
        ...


# DPoP


class UsedProofs(Protocol):
    """The DPoP proofs that were used, and the keys of nonces. `Storage.reading` uses up a proof."""

    async def nonce_key(self, period: int, secret: bytes) -> NonceKey:
        """Return the key of a period. If there is none, store this secret of 32 bytes. All parallel calls return the same key."""
        ...


class UsedProofsCleaning(Protocol):
    """Deletion of obsolete rows of DPoP."""

    async def sweep(self, now: datetime) -> int:
        """Empty the tables with obsolete proofs, and delete obsolete keys, in two statements. Return the number of both.

        A table that is in use, for example by pg_dump, stays as it is until the next sweep.
        """
        ...


class ReauthenticationsRead(Protocol):
    """Read access to reauthentications that are not complete yet."""

    async def load(self, session_id: UUID) -> PendingReauthentication | None:
        """Return the sign-in at an identity provider that the second factor must follow, or None."""
        ...


class Reauthentications(ReauthenticationsRead, Protocol):
    """Write access. Callers lock the account first."""

    async def save_code(self, session_id: UUID, code: EmailedCode) -> None:
        """Store the code that was emailed for a session. It replaces an earlier one."""
        ...

    async def save_provider(self, session_id: UUID, provider: Provider, now: datetime) -> None:
        """Store that the user signed in at an identity provider for this session."""
        ...

    async def consume_code(self, session_id: UUID, code_hash: bytes, now: datetime) -> bool:
        """Use up the emailed code of a session. Return whether it could still be used."""
        ...

    async def remove(self, session_id: UUID) -> None:
        """Forget what the session has verified."""
        ...


class ReauthenticationCodeAttempts(Protocol):
    """Attempts at emailed codes, which commit by themselves."""

    async def count_code_attempt(self, session_id: UUID, tries: int, now: datetime) -> EmailedCode | None:
        """Count an attempt at the code of a session, and return the code, or None if there is none, or no attempt is left."""
        ...


class SentForms(Protocol):
    """The one-time keys of forms that were sent."""

    async def add(self, form_hash: bytes, expires_at: datetime) -> bool:
        """Use up the key with this hash, and return whether it was unused. The row can be deleted at `expires_at`."""
        ...


class KeptFormsRead(Protocol):
    """Read access to forms that wait for a reauthentication."""

    async def find(self, session_id: UUID, form_id: UUID, now: datetime) -> KeptForm | None:
        """Return a form that this session sent, unless it was taken or has expired."""
        ...


class KeptForms(KeptFormsRead, Protocol):
    """Write access to forms that wait for a reauthentication."""

    async def add(self, form: KeptForm, limit: int) -> bool:
        """Keep a form, and return whether its session is still alive. Of the forms of the session, the newest `limit` stay."""
        ...

    async def take(self, session_id: UUID, form_id: UUID, path: str, now: datetime) -> KeptForm | None:
        """Return and forget a form that this session sent to `path`. Of several concurrent calls, exactly one gets it."""
        ...


class AuthenticationReading(Protocol):
    """Read access to the repositories of authentication."""

    @property
    def email_sign_ins(self) -> EmailSignInsRead: ...
    @property
    def identities(self) -> IdentitiesRead: ...
    @property
    def kept_forms(self) -> KeptFormsRead: ...
    @property
    def oauth_credentials(self) -> OAuthCredentialsRead: ...
    @property
    def personal_tokens(self) -> PersonalTokensRead: ...
    @property
    def reauthentications(self) -> ReauthenticationsRead: ...
    @property
    def sessions(self) -> SessionsRead: ...
    @property
    def signing_keys(self) -> SigningKeysRead: ...


class AuthenticationTransaction(Protocol):
    """The repositories of authentication in a transaction."""

    @property
    def dpop_proofs(self) -> UsedProofsCleaning: ...
    @property
    def email_sign_ins(self) -> EmailSignIns: ...
    @property
    def identities(self) -> Identities: ...
    @property
    def kept_forms(self) -> KeptForms: ...
    @property
    def logins(self) -> Logins: ...
    @property
    def oauth_credentials(self) -> OAuthCredentials: ...
    @property
    def personal_tokens(self) -> PersonalTokens: ...
    @property
    def pre_auths(self) -> PreAuths: ...
    @property
    def reauthentications(self) -> Reauthentications: ...
    @property
    def sent_forms(self) -> SentForms: ...
    @property
    def sessions(self) -> Sessions: ...
    @property
    def signing_keys(self) -> SigningKeys: ...


class AuthenticationAutocommit(Protocol):
    """The statements of authentication that commit by themselves."""

    @property
    def dpop_proofs(self) -> UsedProofs: ...
    @property
    def email_sign_ins(self) -> EmailCodeAttempts: ...
    @property
    def logins(self) -> FailedLogins: ...
    @property
    def personal_tokens(self) -> PersonalTokenUse: ...
    @property
    def pre_auths(self) -> MfaAttempts: ...
    @property
    def reauthentications(self) -> ReauthenticationCodeAttempts: ...
    @property
    def sessions(self) -> RefreshTokenRotation: ...
