"""Storage of sessions, their tokens, and the facts that authorize requests."""

from collections.abc import Awaitable, Collection, Mapping, Sequence
from datetime import datetime
from typing import Protocol
from uuid import UUID

from core.accounts.model.profiles import OwnProfile
from core.authentication.model.openid import OpenIdGrant, UserFacts
from core.authentication.model.sessions import (
    UNNAMED_PRESENTER,
    IntrospectedSession,
    LiveSession,
    Presenter,
    RefreshTokenState,
    ReplacedSession,
    RotatedSession,
    Session,
)
from core.kernel.callers import BrowserSession, SessionContext, StoredSignIn
from core.kernel.proofs import SessionProofs
from core.kernel.values import PageResult
from core.tenancy.model.members import LiveSessions


class SessionsRead(Protocol):
    """Read access to sessions."""

    async def list_live(self, user_id: UUID, limit: int, now: datetime) -> PageResult[LiveSession]:
        """Return the user's newest live sessions, and the number of all live ones.

        Sessions of applications and impersonators are included, those of personal access tokens are not.
        """


class Sessions(SessionsRead, Protocol):
    """Write access to sessions and their refresh tokens, which are stored as SHA-256.

    The end of a browser session also ends the applications' sessions of OpenID Connect that the
    user authorized in it, except those with offline access. The caller holds the lock on the
    account: otherwise the exchange of a code at the same time could add one more.
    """

    async def begin(self, session: Session, refresh_hash: bytes) -> None: ...

    async def begin_in_browser(self, session: Session, browser_hash: bytes) -> None:
        """Add a browser session: it has a cookie with this hash, but no tokens, no organization and no service."""

    async def ends_at(self, session_id: UUID, user_id: UUID, now: datetime) -> datetime | None:
        """Return the absolute end of this session of the user, or None if it is not live."""

    async def end(self, session_id: UUID, now: datetime) -> None:
        """End this session. A session that has already ended keeps its end."""

    async def replace_in_browser(self, browser_hash: bytes, successor: UUID, now: datetime) -> ReplacedSession | None:
        """End the browser session of the cookie with this hash, if it has not ended. The session `successor` replaces it.

        If both are of the same user, the applications' sessions that the user authorized in the old
        one move to the new one. Return the old one then, if it was live and lacked no second factor.
        This takes two statements, of which the first locks the account.
        """

    async def end_all(self, user_id: UUID, now: datetime) -> None: ...

    async def end_one(self, user_id: UUID, session_id: UUID, now: datetime) -> bool:
        """End this live session of the user. Return whether there was one. A personal access token does not count as a session."""

    async def end_others(self, user_id: UUID, kept: UUID, now: datetime) -> None:
        """End all sessions of the user except `kept`."""

    async def end_personal_tokens(self, user_id: UUID, now: datetime) -> None: ...
    async def end_on_device(self, user_id: UUID, device_id: UUID, now: datetime) -> None: ...

    async def remove(self, user_id: UUID, now: datetime, service_id: UUID | None = None) -> None:
        """End and delete the sessions of a locked account, or those of one service, with their refresh tokens and unused codes.

        This takes several statements. The first one is repeated until it deletes nothing.
        """


class SessionContextsRead(Protocol):
    """The facts that authorize a request: its session, and the user, organization or service around it."""

    async def load(self, session_id: UUID, user_id: UUID, org_id: UUID | None, now: datetime) -> SessionContext | None:
        """Return all facts for the authorization of a request, or None if the session or the account is not live.

        An impersonation is live only while three conditions hold: the impersonator is a platform
        owner; the session in which the impersonator started it is live; the impersonated user is
        not a platform owner (security I-3).
        """

    async def load_in(self, slug: str, session_id: UUID, user_id: UUID, org_id: UUID | None, now: datetime) -> SessionContext | None:
        """Return the facts of `load`, and in `acts_in` the organization of `slug` with the user's role."""

    async def load_of_application(self, client_id: UUID, session_id: UUID, user_id: UUID, now: datetime) -> SessionContext | None:
        """Return the facts of a session of the application with this client id, and whether the user still uses its service."""

    async def load_with_profile(
        self, client_id: UUID | None, session_id: UUID, user_id: UUID, org_id: UUID | None, now: datetime
    ) -> tuple[SessionContext, OwnProfile] | None:
        """Return the facts of `load`, or with a client id those of `load_of_application`, and the profile."""

    async def load_userinfo(
        self, client_id: UUID | None, session_id: UUID, user_id: UUID, now: datetime
    ) -> tuple[SessionContext, OpenIdGrant, UserFacts, bool] | None:
        """Return a live session of OpenID Connect, its grant, the current facts about its user, and whether its client authenticates.

        `client_id` is None for the platform's own frontend, which does not.
        """

    async def load_of_browser(self, browser_hash: bytes, now: datetime) -> tuple[BrowserSession, SessionContext] | None:
        """Return the live session of the cookie with this hash, and its facts. They contain no organization."""


class ImpersonationsRead(Protocol):
    """Read access to impersonations."""

    async def load(self, session_id: UUID, now: datetime) -> tuple[UUID, SessionContext] | None:
        """Return the id and the facts of the newest live impersonation that was started in this session. They contain no organization."""

    async def started_in(self, session_id: UUID) -> UUID | None:
        """Return the session of the platform owner in which this impersonation was started, or None if this is no impersonation."""


class Impersonations(ImpersonationsRead, Protocol):
    """Write access to impersonations."""

    async def begin_in(self, session_id: UUID, org_id: UUID) -> datetime | None:
        """Store that an impersonation acts in this organization. Return the end of its session in UTC, or None if this was stored before.

        Raises: OrganizationNotFound.
        """

    async def end(self, user_id: UUID, now: datetime) -> None:
        """End the sessions in which the user impersonates others, and those in which others impersonate the user."""


class SessionSignInsRead(Protocol):
    """Read access to the sign-in of a session, and to the browser that it belongs to."""

    async def load_factors(self, session_id: UUID, user_id: UUID) -> BrowserSession | None:
        """Return how the user signed in to this session of any kind, in the form of a browser session. The session may have ended."""

    async def browser_of(self, session_id: UUID, user_id: UUID) -> UUID | None:
        """Return the browser session that this session is or that authorized it, or None if it belongs to no browser."""

    async def is_of_browser(self, session_id: UUID, user_id: UUID, client_name: str | None, browser_hash: bytes) -> bool:
        """Return whether the user authorized this session of the client in the browser with this cookie. Either session may have ended.

        `client_name` is None for the platform's own frontend.
        """


class SessionSignIns(SessionSignInsRead, Protocol):
    """Write access to the sign-in of a session. Lock the account before any method."""

    async def reauthenticate(self, session_id: UUID, user_id: UUID, proofs: SessionProofs) -> None:
        """Replace the proofs of the session. A session with the proof of a connection alone ends with this proof at the latest."""

    async def list_of_user(self, user_id: UUID) -> Sequence[StoredSignIn]:
        """Return the sign-ins of the user's sessions that have not ended. Sessions in which others impersonate the user have none."""

    async def weaken(self, sign_ins: Sequence[StoredSignIn], user_id: UUID, *, asks_again: bool) -> None:
        """Replace the proofs of these sessions by fewer ones, and end their passes of sign-in policies.

        `asks_again`: the account has a second factor. Then sessions of the user's own without one are marked as missing it.
        """

    async def join(self, session_id: UUID, user_id: UUID, proofs: SessionProofs, expires_at: datetime, ends_at: datetime) -> None:
        """Replace the proofs and the end of a session that has just started, by those that it shares with the session it replaced."""

    async def end_of_connection(self, org_id: UUID, connection_id: UUID, user_id: UUID | None, now: datetime) -> Mapping[UUID, int]:
        """End the sign-ins of a connection of the organization: of this user, or of all users that it knows.

        Sessions that are good in the organization alone end, and so do those of its applications. Other sessions lose the proof of the
        connection, and their passes of the organization's sign-in policy. Return the users with the numbers of ended sessions.
        Call this before the connection forgets its users. It takes two statements, of which the first locks the accounts. Lock order:
        the organization before this.
        """

    async def end_provider_session(
        self, org_id: UUID, connection_id: UUID, provider_session: str, user_id: UUID | None, now: datetime
    ) -> Mapping[UUID, int]:
        """End the sign-ins of this session at the identity provider, as `end_of_connection` does: of this user, or of all of its users.

        Applications with offline access keep their sessions.
        """

    async def require_mfa_again(self, user_id: UUID, session_id: UUID, *, is_proved: bool) -> None:
        """Mark the user's own sessions as missing the second factor.

        `session_id` is the session in which the user turned it on. It has the factor if `is_proved`, or if it has any two.
        Sessions with a phishing-resistant sign-in have it.
        """


class OpenIdFactsRead(Protocol):
    """The facts for the claims of a user at a service."""

    async def load_all(self, user_id: UUID, service_id: UUID, now: datetime) -> UserFacts | None:
        """Return the facts for the claims of this user at this service, with all further facts, or None without such a user."""


class OpenIdFacts(OpenIdFactsRead, Protocol):
    """The facts for claims, also as part of a transaction."""

    def load(self, user_id: UUID, service_id: UUID | None, now: datetime, *, with_groups: bool) -> Awaitable[UserFacts | None]:
        """Read the facts for an ID token. There are none if the user does not exist.

        Groups are read only `with_groups`.
        """


class RefreshTokensRead(Protocol):
    """Read access to refresh tokens, which are stored as SHA-256, and to the sessions of tokens."""

    async def grant(self, token_hash: bytes, now: datetime) -> OpenIdGrant | None:
        """Return the grant of the session of this token: NO_GRANT without OpenID Connect and API, or None if the token is unknown."""

    async def introspect(
        self, service_id: UUID | None, session_id: UUID | None, refresh_hash: bytes, now: datetime, *, api_resource_id: UUID | None = None
    ) -> IntrospectedSession | None:
        """Return the live session with this id, or else with this refresh token, which must not be used yet.

        The session must be of this service or, if `api_resource_id` is given, of this API resource. Its
        organization must be active, and its user allowed to use the service, and the API resource if
        it has one.
        """


class RefreshTokens(RefreshTokensRead, Protocol):
    """Write access to refresh tokens."""

    async def explain(self, token_hash: bytes, now: datetime, presenter: Presenter = UNNAMED_PRESENTER) -> RefreshTokenState | None:
        """Return the facts that explain why a refresh token was not rotated, or None if it is unknown."""

    async def revoke(self, session_id: UUID | None, refresh_hash: bytes, presenter: Presenter, now: datetime) -> bool | None:
        """End this session, or the session of this refresh token, current or not, if the presenter may use its tokens.

        Return whether it may, or None if there is no such session or it has already ended.
        """

    async def select_organization(
        self, session_id: UUID, org_id: UUID, new_hash: bytes, now: datetime, expires_at: datetime
    ) -> datetime | None:
        """Make this organization the context of a live session, and replace its current refresh token.

        The session then expires at `expires_at`, but not after its absolute end, which is returned.
        Return None if the session is not live, or if a concurrent request rotated its refresh
        token.
        """


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
        is not replaced, and so it can be used again. For a presenter without a service there are two statements: the
        first one only rotates tokens of sessions without a service.
        """


class OrganizationSessionsRead(Protocol):
    """Read access to the sessions of an organization and its services."""

    async def count_live(self, org_id: UUID, user_id: UUID, now: datetime) -> LiveSessions:
        """Count the sessions that `OrganizationSessions.end` would end, without those of personal access tokens."""


class OrganizationSessions(OrganizationSessionsRead, Protocol):
    """The end of sessions of an organization and its services. The caller holds the locks on the accounts, as in `Sessions`."""

    async def end(self, org_id: UUID, user_ids: Collection[UUID], now: datetime) -> int:
        """End the live sessions of these users in this organization and its services, and return their number (security S-4).

        This also ends their personal access tokens for the organization, which are not counted,
        authorization codes that were not exchanged, device approvals, and the sign-ins of pending SAML
        sign-ons.
        """

    async def end_consented(self, org_id: UUID, service_id: UUID, user_id: UUID, now: datetime, resource_id: UUID | None = None) -> None:
        """End the sessions that this user has at this service of this organization, if they have a scope that the user agreed to.

        This also ends authorization codes and device approvals that would start such sessions. With `resource_id`, only those for
        this API resource end.
        """

    async def end_without_access(
        self, org_id: UUID, service_ids: Collection[UUID], user_ids: Collection[UUID] | None, now: datetime
    ) -> None:
        """End the sessions of these users at services that they may not use now. None means all users.

        They may not if the user has no access, or if they lack a second factor that the service requires.
        """
