"""Storage for sessions, their tokens, and the facts that authorize requests."""

from collections.abc import Awaitable, Collection, Mapping, Sequence
from datetime import datetime
from typing import Protocol
from uuid import UUID

from core.accounts.model.profiles import OwnProfile
from core.authentication.model import openid, sessions
from core.kernel import callers
from core.kernel.proofs import SessionProofs
from core.kernel.values import PageResult
from core.tenancy.model.members import LiveSessions


class SessionsRead(Protocol):
    """Read access to sessions."""

    async def list_live(self, user_id: UUID, limit: int, now: datetime) -> PageResult[sessions.LiveSession]:
        """Return the user's newest live sessions, and how many live sessions there are.

        Sessions for applications and impersonators are included, but not sessions for personal access tokens.
        """


class Sessions(SessionsRead, Protocol):
    """Write access to sessions and their refresh tokens, which are stored as SHA-256.

    When a browser session ends, the applications' OpenID Connect sessions that the user authorized in it also end,
    except sessions with offline access. The caller holds the lock on the account: otherwise a concurrent code exchange
    could add another session.
    """

    async def begin(self, session: sessions.Session, refresh_hash: bytes) -> None: ...

    async def begin_in_browser(self, session: sessions.Session, browser_hash: bytes) -> None:
        """Add a browser session: it has a cookie with this hash, but no tokens, no organization and no service."""

    async def ends_at(self, session_id: UUID, user_id: UUID, now: datetime) -> datetime | None:
        """Return when the user's session must end, or None if it is not live."""

    async def end(self, session_id: UUID, now: datetime) -> None:
        """End this session. A session that has already ended keeps its end."""

    async def replace_in_browser(self, browser_hash: bytes, successor: UUID, now: datetime) -> sessions.ReplacedSession | None:
        """End the browser session with this cookie hash, if it has not ended. The session `successor` replaces it.

        If both sessions have the same user, the applications' sessions that the user authorized in the old session move
        to the new session. Then return the old session, if it was live and lacked no second factor. The method runs two
        statements. The first statement locks the account.
        """

    async def end_all(self, user_id: UUID, now: datetime) -> None: ...

    async def end_one(self, user_id: UUID, session_id: UUID, now: datetime) -> bool:
        """End the user's live session with this id.

        Return whether there was such a session. A personal access token does not count as a session.
        """

    async def end_others(self, user_id: UUID, kept: UUID, now: datetime) -> None:
        """End all the user's sessions except `kept`."""

    async def end_personal_tokens(self, user_id: UUID, now: datetime) -> None: ...
    async def end_on_device(self, user_id: UUID, device_id: UUID, now: datetime) -> None: ...

    async def remove(self, user_id: UUID, now: datetime, service_id: UUID | None = None) -> None:
        """End and delete a locked account's sessions, or only a service's sessions, with their refresh tokens and unused codes.

        The method runs several statements. The first statement is repeated until it deletes nothing.
        """


class SessionContextsRead(Protocol):
    """The facts that authorize a request: its session, and the user, organization or service around it."""

    async def load(self, session_id: UUID, user_id: UUID, org_id: UUID | None, now: datetime) -> callers.SessionContext | None:
        """Return all facts that authorize a request, or None if the session or the account is not live.

        An impersonation is live only while three conditions hold: the impersonator is a platform
        owner; the session in which the impersonator started it is live; the impersonated user is
        not a platform owner (security I-3).
        """

    async def load_in(
        self, slug: str, session_id: UUID, user_id: UUID, org_id: UUID | None, now: datetime
    ) -> callers.SessionContext | None:
        """Return the facts as `load` does, and in `acts_in` the organization with `slug` and the user's role there."""

    async def load_of_application(self, client_id: UUID, session_id: UUID, user_id: UUID, now: datetime) -> callers.SessionContext | None:
        """Return the facts about a session at the application with this client id, and whether the user still uses its service."""

    async def load_with_profile(
        self, client_id: UUID | None, session_id: UUID, user_id: UUID, org_id: UUID | None, now: datetime
    ) -> tuple[callers.SessionContext, OwnProfile] | None:
        """Return the facts as `load` does, or with a client id as `load_of_application` does, and the profile."""

    async def load_userinfo(
        self, client_id: UUID | None, session_id: UUID, user_id: UUID, now: datetime
    ) -> tuple[callers.SessionContext, openid.OpenIdGrant, openid.UserFacts, bool] | None:
        """Return a live OpenID Connect session, its grant, the current facts about its user, and whether its client authenticates.

        `client_id` is None for the platform's own frontend, which does not authenticate.
        """

    async def load_of_browser(self, browser_hash: bytes, now: datetime) -> tuple[callers.BrowserSession, callers.SessionContext] | None:
        """Return the live session with this cookie hash, and its facts. The facts contain no organization."""


class ImpersonationsRead(Protocol):
    """Read access to impersonations."""

    async def load(self, session_id: UUID, now: datetime) -> tuple[UUID, callers.SessionContext] | None:
        """Return the id and the facts for the newest live impersonation that was started in this session.

        The facts contain no organization.
        """

    async def started_in(self, session_id: UUID) -> UUID | None:
        """Return the platform owner's session in which this impersonation was started, or None if this is no impersonation."""


class Impersonations(ImpersonationsRead, Protocol):
    """Write access to impersonations."""

    async def begin_in(self, session_id: UUID, org_id: UUID) -> datetime | None:
        """Store that an impersonation acts in this organization. Return when its session ends in UTC, or None if this was stored before.

        Raises: OrganizationNotFound.
        """

    async def end(self, user_id: UUID, now: datetime) -> None:
        """End the sessions in which the user impersonates another user, and the sessions in which the user is impersonated."""


class SessionSignInsRead(Protocol):
    """Read access to a session's sign-in, and to the browser that it belongs to."""

    async def load_factors(self, session_id: UUID, user_id: UUID) -> callers.BrowserSession | None:
        """Return how the user signed in to this session, whatever its kind, in the form that browser sessions have.

        The session may have ended.
        """

    async def browser_of(self, session_id: UUID, user_id: UUID) -> UUID | None:
        """Return the browser session that this session is or that authorized it, or None if it belongs to no browser."""

    async def is_of_browser(self, session_id: UUID, user_id: UUID, client_name: str | None, browser_hash: bytes) -> bool:
        """Return whether the user authorized the client's session in the browser with this cookie. Either session may have ended.

        `client_name` is None for the platform's own frontend.
        """


class SessionSignIns(SessionSignInsRead, Protocol):
    """Write access to a session's sign-in. Lock the account before any method."""

    async def reauthenticate(self, session_id: UUID, user_id: UUID, proofs: SessionProofs) -> None:
        """Replace the session's proofs. A session with only a connection's proof ends with this proof at the latest."""

    async def list_of_user(self, user_id: UUID) -> Sequence[callers.StoredSignIn]:
        """Return the sign-ins to the user's sessions that have not ended. An impersonator's session has no sign-in."""

    async def weaken(self, sign_ins: Sequence[callers.StoredSignIn], user_id: UUID, *, asks_again: bool) -> None:
        """Replace the proofs in these sessions by fewer proofs, and end their sign-in policy passes.

        `asks_again`: the account has a second factor. Then the user's own sessions without a second factor are marked as missing it.
        """

    async def join(self, session_id: UUID, user_id: UUID, proofs: SessionProofs, expires_at: datetime, ends_at: datetime) -> None:
        """Set the proofs and the end of a session that has just started, to the values that it shares with the session it replaced."""

    async def end_of_connection(self, org_id: UUID, connection_id: UUID, user_id: UUID | None, now: datetime) -> Mapping[UUID, int]:
        """End a connection's sign-ins: only this user's sign-ins, or all sign-ins of users that it knows.

        Sessions that are good in the organization alone end, and so do the sessions of its applications. All remaining sessions lose the
        connection's proof, and their passes from the organization's sign-in policy. Return how many sessions ended, per user. Call this
        before the connection forgets its users. The method runs two statements. The first statement locks the accounts. Lock order: the
        organization before this.
        """

    async def end_provider_session(
        self, org_id: UUID, connection_id: UUID, provider_session: str, user_id: UUID | None, now: datetime
    ) -> Mapping[UUID, int]:
        """End the sign-ins of this session at the identity provider, for this user or for all its users, as `end_of_connection` does.

        Applications with offline access keep their sessions.
        """

    async def require_mfa_again(self, user_id: UUID, session_id: UUID, *, is_proved: bool) -> None:
        """Mark the user's own sessions as missing the second factor.

        `session_id` is the session in which the user turned it on. The session has the factor if `is_proved`, or if it has any two factors.
        Sessions with a phishing-resistant sign-in have it.
        """


class OpenIdFactsRead(Protocol):
    """The facts for a user's claims at a service."""

    async def load_all(self, user_id: UUID, service_id: UUID, now: datetime) -> openid.UserFacts | None:
        """Return the facts for this user's claims at this service, with all further facts, or None without such a user."""


class OpenIdFacts(OpenIdFactsRead, Protocol):
    """The facts for claims, also within a transaction."""

    def load(self, user_id: UUID, service_id: UUID | None, now: datetime, *, with_groups: bool) -> Awaitable[openid.UserFacts | None]:
        """Read the facts for an ID token. There are no facts if the user does not exist.

        Groups are read only `with_groups`.
        """


class RefreshTokensRead(Protocol):
    """Read access to refresh tokens, which are stored as SHA-256, and to their sessions."""

    async def grant(self, token_hash: bytes, now: datetime) -> openid.OpenIdGrant | None:
        """Return the grant behind this token's session: NO_GRANT without OpenID Connect and API, or None if the token is unknown."""

    async def introspect(
        self, service_id: UUID | None, session_id: UUID | None, refresh_hash: bytes, now: datetime, *, api_resource_id: UUID | None = None
    ) -> sessions.IntrospectedSession | None:
        """Return the live session with this id, or else with this refresh token, which must not be used yet.

        The session must belong to this service or, if `api_resource_id` is given, to this API resource. The session's
        organization must be active, and its user allowed to use the service, and the API resource if the session has
        one.
        """


class RefreshTokens(RefreshTokensRead, Protocol):
    """Write access to refresh tokens."""

    async def explain(
        self, token_hash: bytes, now: datetime, presenter: sessions.Presenter = sessions.UNNAMED_PRESENTER
    ) -> sessions.RefreshTokenState | None:
        """Return the facts that explain why a refresh token was not rotated, or None if it is unknown."""

    async def revoke(self, session_id: UUID | None, refresh_hash: bytes, presenter: sessions.Presenter, now: datetime) -> bool | None:
        """End this session, or this refresh token's session, current or not, if the presenter may use its tokens.

        Return whether the presenter may, or None if there is no such session or it has already ended.
        """

    async def select_organization(
        self, session_id: UUID, org_id: UUID, new_hash: bytes, now: datetime, expires_at: datetime
    ) -> datetime | None:
        """Let a live session act in this organization, and replace its current refresh token.

        The session then expires at `expires_at`, but not after its absolute end, which is returned.
        Return None if the session is not live, or if a concurrent request rotated its refresh
        token.
        """


class RefreshTokenRotation(Protocol):
    """Refresh token rotation."""

    async def rotate(
        self,
        old_hash: bytes,
        new_hash: bytes,
        now: datetime,
        expires_at: datetime,
        presenter: sessions.Presenter = sessions.UNNAMED_PRESENTER,
    ) -> sessions.RotatedSession | None:
        """Replace a current refresh token, or return None if it cannot be used now.

        A token can be used if three conditions hold: its session, user and organization are active; the user still is a
        member of the organization or may use the service; the presenter may use the token. The session then expires at
        `expires_at`, but not after its absolute end. Exactly one concurrent call succeeds. If a service has bound
        tokens only, its refresh token is not replaced, and so it can be used again. A presenter without a service takes
        two statements: the first statement only rotates tokens in sessions without a service.
        """


class OrganizationSessionsRead(Protocol):
    """Read access to the sessions in an organization and its services."""

    async def count_live(self, org_id: UUID, user_id: UUID, now: datetime) -> LiveSessions:
        """Count the sessions that `OrganizationSessions.end` would end, without sessions for personal access tokens."""


class OrganizationSessions(OrganizationSessionsRead, Protocol):
    """Ending sessions in an organization and its services. The caller holds the locks on the accounts, as in `Sessions`."""

    async def end(self, org_id: UUID, user_ids: Collection[UUID], now: datetime) -> int:
        """End these users' live sessions in this organization and its services, and return how many ended (security S-4).

        Their personal access tokens for the organization also end, but are not counted, and so do authorization codes
        that were not exchanged, device approvals, and the sign-ins in pending SAML sign-ons.
        """

    async def end_consented(self, org_id: UUID, service_id: UUID, user_id: UUID, now: datetime, resource_id: UUID | None = None) -> None:
        """End the sessions that this user has at the organization's service, if they have a scope that the user agreed to.

        Authorization codes and device approvals that would start such sessions also end. With `resource_id`, only sessions for this API
        resource end.
        """

    async def end_without_access(
        self, org_id: UUID, service_ids: Collection[UUID], user_ids: Collection[UUID] | None, now: datetime
    ) -> None:
        """End these users' sessions at services that they may not use now. `user_ids` of None means all users.

        A user may not use a service without access, or without a second factor that the service requires.
        """
