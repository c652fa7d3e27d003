"""What a user agreed to when they gave an application access."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

from core.authentication.model import openid


@dataclass(frozen=True, slots=True)
class ClientFacts:
    """What a consent covers of an external client: the redirect URI, None in the device flow, and how it authenticates."""

    redirect_uri: str | None
    authentication: str


@dataclass(frozen=True, slots=True)
class News:
    """What a user has not agreed to yet. `api` are scopes of an API resource, or None if the user has agreed to its access."""

    scope: frozenset[openid.Scope] = frozenset()
    api: frozenset[str] | None = None
    redirect_uri: bool = False
    authentication: bool = False


NO_NEWS: Final = News()


@dataclass(frozen=True, slots=True)
class Agreement:
    """The scopes that the user has agreed to give an application: for OpenID Connect, and for one API resource.

    `api` is None if the user has not agreed to the API resource at all. It can be empty. The last two fields are about an external client:
    the redirect URIs that the user has agreed to, and how the client authenticated then.
    """

    scope: frozenset[openid.Scope]
    api: frozenset[str] | None = None
    redirect_uris: frozenset[str] = frozenset()
    authentication: str | None = None

    @property
    def is_first(self) -> bool:
        """Whether the user has agreed to nothing yet."""
        return not self.scope and self.api is None and self.authentication is None

    def compare(self, grant: openid.OpenIdGrant, client: ClientFacts | None) -> News:
        """Return what this agreement lacks for the grant. `client` are the facts about an external client."""
        new_api = frozenset() if grant.api is None else frozenset(grant.api.scope) - (self.api or frozenset())
        return News(
            scope=grant.consent_scopes - self.scope,
            api=new_api if new_api or (grant.api is not None and self.api is None) else None,
            redirect_uri=client is not None and client.redirect_uri not in (None, *self.redirect_uris),
            authentication=client is not None and client.authentication != self.authentication,
        )

    def widen(self, grant: openid.OpenIdGrant, names: Sequence[str]) -> openid.OpenIdGrant:
        """Return the grant with the API resource's earlier scopes, too, if it has an API scope that the user has not agreed to.

        `names` are all scopes of the API resource that the application may have now.
        """
        api = grant.api
        if api is None or self.api is None or self.api.issuperset(api.scope):
            return grant
        return replace(grant, api=replace(api, scope=tuple(name for name in names if name in self.api or name in api.scope)))

    def covers(self, grant: openid.OpenIdGrant, client: ClientFacts | None) -> bool:
        """Return whether the user need not be asked for anything in this grant."""
        return self.compare(grant, client) == NO_NEWS
