"""What the pages of a sign-in know about what waits for it, and about the page that comes next."""

from dataclasses import dataclass

from core.applications.model.services import Service
from core.authentication.flow.steps import Step
from core.authentication.model.openid import OpenIdGrant
from core.programs.model.api_resources import ApiResource


@dataclass(frozen=True, slots=True, kw_only=True)
class Destination:
    """What waits for a sign-in."""

    service: Service | None = None  # the application, or None for the platform itself
    org_slug: str | None = None  # of the organization of an authorization request
    login_hint: str | None = None  # the email address to fill in
    offers_sign_up: bool = True  # a new user can get access by signing up
    api: ApiResource | None = None  # that the application asks for


@dataclass(frozen=True, slots=True)
class Asked:
    """The page that must be shown next, what waits for it if that is loaded, and what it asks the user to agree to, if anything."""

    step: Step
    destination: Destination | None = None
    grant: OpenIdGrant | None = None
