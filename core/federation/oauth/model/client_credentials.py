"""Tokens that programs get for themselves: values and refusals (RFC 6749 section 4.4)."""

from __future__ import annotations

from dataclasses import dataclass, field

from core.kernel.errors import Invalid


class ClientCredentialsRefused(Invalid):
    """This client cannot get tokens for itself. Use a service account, or send the secret of a confidential application."""

    oauth_error = "unauthorized_client"


class ScopeNotAllowed(Invalid):
    """This client may not have one of these scopes. Ask for fewer, or ask an admin of the organization to grant them."""

    oauth_error = "invalid_scope"


class NoScope(ScopeNotAllowed):
    """This client has no scopes there. Ask an admin to grant some, or send an API resource where it has some in the parameter resource."""


@dataclass(frozen=True, slots=True)
class ProgramToken:
    """An access token of a program, its lifetime in seconds and its scopes. With `is_bound`, each use needs a DPoP proof (RFC 9449)."""

    access_token: str = field(repr=False)
    expires_in: int
    scope: str
    is_bound: bool = False
