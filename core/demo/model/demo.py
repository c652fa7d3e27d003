"""The demo data of `gatehouse demo`, with the secrets that are shown once, and its error."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from uuid import UUID

from core.applications.model.plans import Plan
from core.applications.model.services import Service
from core.eventing.model.webhooks import Webhook
from core.federation.saml.model.configuration import SamlConfiguration
from core.kernel.errors import Invalid
from core.kernel.values import Email
from core.programs.model.api_resources import ApiResource
from core.tenancy.model.organizations import Organization


class DemoRefused(Invalid):
    """The demo data cannot be created. Nothing was changed."""

    def __init__(self, problem: str) -> None:
        super().__init__(f"{problem} Nothing was changed.")


@dataclass(frozen=True, slots=True)
class DemoUser:
    """A user with a password and, if two-factor authentication is on, the base32 secret for an authenticator app."""

    id: UUID
    email: Email
    password: str = field(repr=False)
    totp_secret: str | None = field(default=None, repr=False)


@dataclass(frozen=True, slots=True)
class Application:
    """A service and its client secret. A public service has none."""

    service: Service
    client_secret: str | None = field(repr=False)


@dataclass(frozen=True, slots=True)
class DemoServiceAccount:
    """A service account that may read the members and the orders of the API resource, and its secret."""

    client_id: UUID
    client_secret: str = field(repr=False)


@dataclass(frozen=True, slots=True)
class DemoApiResource:
    """An API resource, and the secret with which it introspects tokens."""

    resource: ApiResource
    client_secret: str = field(repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Tenant:
    """An organization with all its demo data.

    The API key has all permissions. The end users have verified addresses, and one of them has a
    second factor. `saml` is the enabled SAML configuration of the web application.
    """

    organization: Organization
    owner: DemoUser
    admin: DemoUser
    member: DemoUser
    web: Application
    mobile: Application
    saml: SamlConfiguration
    plan: Plan
    api_key: str = field(repr=False)
    api_resource: DemoApiResource
    service_account: DemoServiceAccount
    scim_token: str = field(repr=False)
    webhook: Webhook
    webhook_secret: str = field(repr=False)
    end_users: Sequence[DemoUser]


@dataclass(frozen=True, slots=True)
class Demo:
    """The complete demo data."""

    platform_owner: DemoUser
    first: Tenant
    other: Tenant
