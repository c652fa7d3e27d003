"""What the pages of a sign-in know about what waits for it, and about the page that comes next."""

from collections.abc import Sequence
from dataclasses import dataclass
from urllib.parse import urlsplit

from core.applications.model.services import Service
from core.authentication import admissions
from core.authentication.flow.facts import ApplicationNeeds
from core.authentication.model import agreements, openid
from core.kernel.connections import ConnectionRef
from core.kernel.proofs import Strength
from core.kernel.sign_in_policy.steps import Step
from core.programs.model.api_resources import ApiResource


@dataclass(frozen=True, slots=True, kw_only=True)
class Destination:
    """What waits for a sign-in."""

    service: Service | None = None  # the application, or None for the platform itself
    has_sign_in_policy: bool = False  # the organization of the application has one
    org_slug: str | None = None  # the organization in an authorization request
    login_hint: str | None = None  # the email address to fill in
    domain_hint: str | None = None  # of the user, for an identity provider
    offers_sign_up: bool = True  # a new user can get access by signing up
    api: ApiResource | None = None  # that the application asks for
    redirect_uri: str | None = None  # where the browser goes after an authorization request
    required: Strength = Strength.ONE  # of the sign-in, by the request or the settings of the application
    connections: Sequence[ConnectionRef] = ()  # of an organization, at which the request lets the user sign in

    @property
    def needs(self) -> ApplicationNeeds:
        """The requirements of the application for a sign-in."""
        service, api = self.service, self.api
        return ApplicationNeeds(
            name=None if service is None else service.known_name,
            required=self.required,
            has_sign_in_policy=self.has_sign_in_policy,
            external_for=api.id if api is not None and service is not None and service.is_external else None,
        )

    @property
    def target(self) -> str | None:
        """Return the host that the browser goes to, or the scheme of an app, so that the user can recognize it, or None."""
        if self.redirect_uri is None:
            return None
        parts = urlsplit(self.redirect_uri)
        return parts.netloc or f"{parts.scheme}:"


@dataclass(frozen=True, slots=True)
class Asked:
    """The page that must be shown next, what waits for it if that is loaded, and what it asks the user to agree to, if anything."""

    step: Step
    destination: Destination | None = None
    grant: openid.OpenIdGrant | None = None
    admission: admissions.Admission = admissions.NO_ADMISSION  # the answer of the sign-in policy about the session
    client: agreements.ClientFacts | None = None  # about an external client
    agreement: agreements.Agreement | None = None  # what the user agreed to before, if that was loaded
    wants_fresh: bool | None = None  # an identity provider must authenticate the user again; None: as the flow says

    @property
    def question(self) -> str:
        """What the page asks the user, as text. The application can ask for more by the time that the answer comes."""
        if self.grant is None:
            return self.step.value
        scopes = openid.in_order(self.grant.consent_scopes)
        resource = [] if self.grant.api is None else [self.grant.resource or "", *self.grant.api.scope]
        client = [] if self.client is None else [self.client.redirect_uri or "", self.client.authentication]
        return " ".join([self.step.value, *scopes, *resource, *client])


@dataclass(frozen=True, slots=True)
class PageAnswer:
    """The answer of a user to the question of a page: `continue` or `select`. Every other text refuses."""

    answer: str
    question: str  # of `Asked`

    @property
    def is_yes(self) -> bool:
        return self.answer in ("continue", "select")
