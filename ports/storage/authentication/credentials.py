"""Storage for linked identities, credentials at identity providers, personal access tokens, signing keys and DPoP."""

from collections.abc import Awaitable
from datetime import datetime
from typing import Protocol
from uuid import UUID

from core.accounts.model.security_notices import AddedSignInMethod
from core.applications.model.users import LinkedIdentity
from core.authentication.model import identities
from core.authentication.model.dpop import NonceKey
from core.authentication.model.tokens import MemberPersonalToken, PersonalToken, PersonalTokenRecord, SigningKey
from core.kernel import connections, values
from core.kernel.causes import Caller


class IdentitiesRead(Protocol):
    """Read access to linked identities. The context is the service with the id `service_id`, or the account itself if it is None."""

    async def list_of_user(self, user_id: UUID, service_id: UUID | None) -> list[LinkedIdentity]:
        """Return the user's identities in this context, oldest link first."""

    async def list_providers(self, user_id: UUID) -> list[connections.ConnectionSlug]:
        """Return the providers where the user has linked an account in any context."""

    async def list_places(self, user_id: UUID) -> list[identities.LinkedPlace]:
        """Return where the user has linked accounts: the account itself first, then the oldest links.

        Applications in inactive organizations are left out.
        """

    async def list_added(self, user_id: UUID, since: datetime) -> list[AddedSignInMethod]:
        """Return the accounts at providers that were linked after the sign-up, oldest first. Accounts linked after `since` are recent.

        If the address was first verified after the sign-up, the account used at the sign-up counts, too.
        """

    async def load_provider_token(
        self, user_id: UUID, service_id: UUID | None, provider: connections.ConnectionSlug
    ) -> identities.ProviderToken | None:
        """Return the provider's access token, expired or not. Raises: SealBroken."""


class Identities(IdentitiesRead, Protocol):
    """Write access to linked identities. Callers lock the account first, unless a method says otherwise."""

    async def lock_subject(self, provider: connections.ConnectionSlug, issuer: str, subject: str) -> None:
        """Lock a provider's subject, so that concurrent sign-ins with the same subject wait. Lock order: first of all."""

    async def match(
        self, provider: connections.ConnectionSlug, issuer: str, subject: str, service_id: UUID | None
    ) -> identities.IdentityMatch | None:
        """Return this subject's identity in this context, or else in a different context, or None.

        Call `lock_subject` first. The account need not be locked.
        """

    async def add(self, identity: identities.Identity) -> bool:
        """Link an identity, with its tokens encrypted.

        Return False, and link nothing, if the user already has an identity at this provider in the context, or if the service was deleted.
        """

    async def update_tokens(self, identity_id: UUID, email: values.Email | None, tokens: connections.ProviderTokens) -> None:
        """Store new tokens. If `email` or the new refresh token is None, keep the stored value."""

    async def claim_renewal(
        self, user_id: UUID, service_id: UUID | None, provider: connections.ConnectionSlug, now: datetime, until: datetime
    ) -> identities.TokenRenewal | None:
        """Take the lease to renew an expired token until `until`, or return None if another request holds it.

        The account need not be locked for the renewal methods.

        Raises: SealBroken.
        """

    async def complete_renewal(self, renewal: identities.TokenRenewal, tokens: connections.ProviderTokens) -> bool:
        """Store the renewed tokens, unless different tokens were stored since the lease was taken. Return whether they were stored."""

    async def release_renewal(self, renewal: identities.TokenRenewal) -> None:
        """Release the lease, so that another request can take it."""

    async def remove_all(self, user_id: UUID) -> None:
        """Unlink all the user's identities, in the account and in all services."""

    async def remove_added(self, user_id: UUID, identity_id: UUID) -> None:
        """Unlink the account at the provider that this identity belongs to, in the account and in all services."""

    async def remove_linked_since(self, user_id: UUID, since: datetime) -> list[connections.ConnectionSlug]:
        """Unlink the identities that were linked at that time or later, in the account and in all services. Return their providers."""

    async def remove(self, user_id: UUID, service_id: UUID, provider: connections.ConnectionSlug) -> bool:
        """Unlink a service's identity. Return whether there was an identity."""

    async def remove_everywhere(self, user_id: UUID, provider: connections.ConnectionSlug, notice_id: UUID | None) -> list[UUID | None]:
        """Unlink the user's identities at this provider in all contexts.

        Return the identities' service ids, with None for the account itself.

        The notice keeps the identities, without tokens, for `link_again`.
        """

    async def link_again(self, user_id: UUID, since: datetime) -> list[connections.ConnectionSlug]:
        """Link the identities again that were linked before `since` and unlinked then or later. Return their providers.

        An identity that another account has in the same context is left out.
        """


class OAuthCredentialsRead(Protocol):
    """Read access to the platform connections that are set up, and to the credentials there. The secrets are encrypted."""

    def list_connections(self) -> Awaitable[list[connections.Connection]]: ...

    async def load(
        self, slug: connections.ConnectionSlug, org_id: UUID | None, service_id: UUID | None
    ) -> connections.PlatformCredentials | None:
        """Return a platform connection with this service's client, or else with the platform's client. Raises: SealBroken."""

    async def list_of_service(self, org_id: UUID, service_id: UUID) -> dict[connections.ConnectionSlug, identities.ServiceOAuthCredentials]:
        """Return a service's credentials by provider, without the secrets."""


class OAuthCredentials(OAuthCredentialsRead, Protocol):
    """Write access to the credentials. Callers lock the organization before any change for a service."""

    async def save_connection(
        self, slug: connections.ConnectionSlug, credentials: connections.PlatformCredentials | None, now: datetime
    ) -> None:
        """Store a platform connection's settings, and the platform's client there. None: the connection is not set up."""

    async def put(self, org_id: UUID, service_id: UUID, credentials: identities.ServiceOAuthCredentials, client_secret: str) -> None:
        """Set a service's credentials at this provider."""

    async def remove(self, org_id: UUID, service_id: UUID, provider: connections.ConnectionSlug) -> bool:
        """Delete the credentials at this provider. Return whether there were credentials."""


class PersonalTokensRead(Protocol):
    """Read access to personal access tokens. Only live tokens are returned."""

    async def load_record(self, token_hash: bytes, slug: str | None, now: datetime) -> PersonalTokenRecord | None:
        """Return the token with this hash and all facts that authorize a request.

        `session.acts_in` is the organization with `slug` and the user's role there, or None if there is none.
        """

    async def of_user(self, user_id: UUID, now: datetime) -> list[PersonalToken]:
        """Return the user's tokens, newest first."""

    async def page(self, org_id: UUID, page: values.Page, now: datetime) -> values.PageResult[MemberPersonalToken]:
        """Return a page with the tokens that act in the organization, newest first."""


class PersonalTokens(PersonalTokensRead, Protocol):
    """Write access to personal access tokens. Callers lock the account before `count_live`, `add` and `end`."""

    async def count_live(self, user_id: UUID, now: datetime) -> int: ...

    async def add(self, token: PersonalToken, token_hash: bytes, caller: Caller) -> None:
        """Add a token and its session, with the caller's address and user agent, and the proofs in the caller's session."""

    async def user_in_organization(self, org_id: UUID, token_id: UUID, now: datetime) -> UUID | None:
        """Return this token's user, if the token acts in the organization."""

    async def end(self, user_id: UUID, token_id: UUID, now: datetime) -> PersonalToken | None:
        """End and return the user's token, or return None if the user has no such token."""


class PersonalTokenUse(Protocol):
    """The last use of personal access tokens."""

    async def record_use(self, token_id: UUID, now: datetime, before: datetime) -> None:
        """Set when the token was last used, unless a use after `before` is stored."""


class SigningKeysRead(Protocol):
    """Read access to signing keys."""

    async def live(self, now: datetime) -> list[SigningKey]:
        """Return the keys that have not retired at this time, newest first."""

    async def issuer(self) -> str | None:
        """Return the issuer at the last start, or None before the first start."""


class SigningKeys(SigningKeysRead, Protocol):
    """Write access to signing keys."""

    async def lock(self) -> None:
        """Lock the choice of the active key until the transaction ends, so that concurrent rotations wait."""

    async def has_active(self) -> bool:
        """Return whether a key exists that is not retiring."""

    async def add(self, key: SigningKey) -> None:
        """Add a key, and notify all processes after the commit."""

    async def retire_all(self, retires_at: datetime) -> None: ...

    async def remove_all(self) -> None:
        """Delete all keys, also keys that still verify. The caller adds a key in the same transaction."""

    async def set_issuer(self, url: str) -> None: ...


class UsedProofs(Protocol):
    """Used DPoP proofs, and the nonce keys. `Storage.reading` uses up a proof."""

    async def nonce_key(self, period: int, secret: bytes) -> NonceKey:
        """Return a period's key. If there is no key, store this 32-byte secret. All parallel calls return the same key."""


class UsedProofsCleaning(Protocol):
    """Deletion of obsolete DPoP rows."""

    async def sweep(self, now: datetime) -> int:
        """Empty the tables with obsolete proofs, and delete obsolete keys, in two statements. Return how many proofs and keys were removed.

        A table that is in use, for example by pg_dump, stays as it is until the next sweep.
        """
