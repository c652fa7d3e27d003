"""The demo data for `gatehouse demo`. All addresses are in a reserved domain (RFC 2606 section 3)."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Final
from uuid import UUID

from core.applications.model.plans import Plan
from core.applications.model.services import Service
from core.authentication.model.claim_document import Document
from core.eventing.model.webhooks import Webhook
from core.federation.connections.model.connections import OrganizationConnection
from core.federation.saml.model import configuration
from core.kernel import roles, values
from core.kernel.errors import Invalid
from core.programs.model import api_resources, credentials
from core.tenancy.model import attributes
from core.tenancy.model.organizations import Organization
from core.tenancy.model.roles import NewRole


class DemoRefused(Invalid):
    """The demo data cannot be created. Nothing was changed."""

    def __init__(self, problem: str) -> None:
        super().__init__(f"{problem} Nothing was changed.")


@dataclass(frozen=True, slots=True)
class DemoUser:
    """A user with a password and, if two-factor authentication is on, the base32 secret for an authenticator app."""

    id: UUID
    email: values.Email
    password: str = field(repr=False)
    totp_secret: str | None = field(default=None, repr=False)


@dataclass(frozen=True, slots=True)
class Application:
    """A service and its client secret. A public service has no client secret."""

    service: Service
    client_secret: str | None = field(repr=False)


@dataclass(frozen=True, slots=True)
class DemoServiceAccount:
    """A service account that may read the members and the API resource's orders, and its secret."""

    client_id: UUID
    client_secret: str = field(repr=False)


@dataclass(frozen=True, slots=True)
class DemoApiResource:
    """An API resource, and the secret with which it introspects tokens."""

    resource: api_resources.ApiResource
    client_secret: str = field(repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Tenant:
    """An organization with all its demo data.

    The API key has all permissions. The end users have verified addresses. One user has a second factor, and one user
    has a passkey. `saml` is the web application's enabled SAML configuration.
    """

    organization: Organization
    owner: DemoUser
    admin: DemoUser
    member: DemoUser
    auditor: DemoUser
    web: Application
    mobile: Application
    saml: configuration.SamlConfiguration
    plan: Plan
    api_key: str = field(repr=False)
    api_resource: DemoApiResource
    service_account: DemoServiceAccount
    scim_token: str = field(repr=False)
    webhook: Webhook
    webhook_secret: str = field(repr=False)
    connection: OrganizationConnection  # a draft with the test provider
    routed_domain: values.Domain
    setup_link: str = field(repr=False)  # the secret
    end_users: Sequence[DemoUser]


@dataclass(frozen=True, slots=True)
class Demo:
    """The complete demo data."""

    platform_owner: DemoUser
    first: Tenant
    other: Tenant


PLATFORM_OWNER: Final = values.Email("steward@demo.example")
ORGANIZATIONS: Final[Mapping[values.Slug, str]] = {values.Slug("demo"): "Demo", values.Slug("demo-other"): "Another Demo"}
MAX_SERVICES: Final = 10  # per organization: the demo's services, and some more
ORGANIZATION_WITH_POLICY: Final = values.Slug("demo")  # it asks its admins for a second factor
# A role in every organization: its holders see what members see, and read the logs
COST_CENTER: Final = "cost_center"  # an attribute
AUDITOR: Final = roles.RoleName("auditor")
AUDITOR_ROLE: Final = NewRole(
    name="Auditor",
    slug=AUDITOR,
    description="Reads the audit log and the sign-ins, and changes nothing.",
    capabilities=sorted(
        (roles.ROLES[roles.MEMBER].rights & roles.CUSTOMIZABLE) | {roles.Capability.AUDIT_VIEW, roles.Capability.SIGN_INS_VIEW}
    ),
)
END_USERS: Final = ("ada", "grace")
MFA_USER: Final = "grace"  # the end user with a second factor
PASSKEY_USER: Final = "ada"  # the end user with a passkey
WEB, MOBILE = values.Slug("web-shop"), values.Slug("mobile-shop")
NAME: Final = "Demo"  # for keys, tokens and the webhook
NEW_SECRET: Final = credentials.NewCredential(credentials.CredentialKind.SECRET, NAME)
PLAN_NAME: Final = "Professional"
ROBOT_NAME: Final = "Member report"
RESOURCE_NAME: Final = "Orders API"
RESOURCE_URN: Final = "urn:gatehouse:{org_id}:orders"
READ_ORDERS: Final = "orders:read"
RESOURCE_SCOPES: Final = (
    api_resources.ResourceScope(READ_ORDERS, "Read orders."),
    api_resources.ResourceScope("orders:write", "Create and change orders."),
)
WEBHOOK_URL: Final = "https://hooks.demo.example/gatehouse"  # in a reserved domain; the user may change it
WEBHOOK_EVENTS: Final = ("user.login.success", "user.joined", "user.removed")
WEB_URIS: Final = ("http://localhost:3000/callback",)  # the applications' default redirect URIs
MOBILE_URIS: Final = ("http://127.0.0.1/callback", "com.example.demo:/callback")
# The web application's SAML settings.
SAML: Final = configuration.SamlConfiguration(
    enabled=True,
    entity_id="http://localhost:3000/saml/metadata",
    acs_url="http://localhost:3000/saml/acs",
    slo_url="http://localhost:3000/saml/slo",
    name_id_format=configuration.NameIdFormat.EMAIL,
)


# The web application's claims: a user name for every user, and the attribute.
CLAIMS: Final[Document] = {
    "values": {
        "preferred_username": {"sources": ["preferred_username", "email_local_part"]},
        COST_CENTER: {"sources": [f"attribute:{COST_CENTER}"]},
    }
}


def cost_center(org_id: UUID, now: datetime) -> attributes.Attribute:
    """Return the attribute that the organization declares."""
    writers = (attributes.AttributeWriter.ADMIN, attributes.AttributeWriter.USER)
    return attributes.Attribute(
        org_id=org_id, name=COST_CENTER, label="Cost center", kind=attributes.AttributeKind.TEXT, writers=writers, created_at=now
    )


def member_email(slug: values.Slug, role: roles.RoleName) -> values.Email:
    """Return the address of the member with this role."""
    return values.Email(f"{role}@{slug}.example")


def customer_email(slug: values.Slug, name: str) -> values.Email:
    """Return an end user's address."""
    return values.Email(f"{name}@customer.{slug}.example")


def all_addresses() -> list[values.Email]:
    """Return all accounts' addresses."""
    members = [member_email(slug, role) for slug in ORGANIZATIONS for role in (*roles.ROLES, AUDITOR)]
    return [PLATFORM_OWNER, *members, *(customer_email(slug, name) for slug in ORGANIZATIONS for name in END_USERS)]
