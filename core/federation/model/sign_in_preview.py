"""The results of a test of the sign-in to an application."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from core.authentication.model.openid import Scope
    from core.federation.saml.model.configuration import NameIdFormat


class PreviewOutcome(StrEnum):
    """The next step of a sign-in."""

    SIGNED_IN = "signed_in"  # at once
    CONSENT = "consent"  # the user is asked first
    SIGN_IN = "sign_in"  # the user must sign in again, for example with the second factor
    REFUSED = "refused"


@dataclass(frozen=True, slots=True)
class OpenIdPreview:
    """The result with OAuth. The claims are None without the scope `openid`, and if the user could not be signed in now."""

    outcome: PreviewOutcome
    redirect_uri: str
    error: str | None = None  # the error code of OAuth
    message: str | None = None
    scope: tuple[Scope, ...] = ()
    id_token: Mapping[str, object] | None = None
    userinfo: Mapping[str, object] | None = None


@dataclass(frozen=True, slots=True)
class SamlPreview:
    """The result with SAML. `name_id` is None if the sign-on itself would create it."""

    outcome: PreviewOutcome
    entity_id: str  # of the service
    name_id_format: NameIdFormat
    error: str | None = None
    message: str | None = None
    name_id: str | None = None
    attributes: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class SignInPreview:
    """The results of both protocols. None where the application does not use it."""

    openid: OpenIdPreview | None
    saml: SamlPreview | None
