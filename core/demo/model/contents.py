"""The fixed names and settings of the demo data. All addresses are in a reserved domain (RFC 2606 section 3)."""

from collections.abc import Mapping
from typing import Final

from core.federation.saml.model.configuration import NameIdFormat, SamlConfiguration
from core.kernel.roles import Role
from core.kernel.values import Email, Slug
from core.programs.model.api_resources import ResourceScope
from core.programs.model.credentials import CredentialKind, NewCredential

PLATFORM_OWNER: Final = Email("steward@demo.example")
ORGANIZATIONS: Final[Mapping[Slug, str]] = {Slug("demo"): "Demo", Slug("demo-other"): "Another Demo"}
END_USERS: Final = ("ada", "grace")
MFA_USER: Final = "grace"  # the end user with a second factor
WEB, MOBILE = Slug("web-shop"), Slug("mobile-shop")
NAME: Final = "Demo"  # of keys, tokens and the webhook
NEW_SECRET: Final = NewCredential(CredentialKind.SECRET, NAME)
PLAN_NAME: Final = "Professional"
ROBOT_NAME: Final = "Member report"
RESOURCE_NAME: Final = "Orders API"
RESOURCE_URN: Final = "urn:gatehouse:{org_id}:orders"
READ_ORDERS: Final = "orders:read"
RESOURCE_SCOPES: Final = (ResourceScope(READ_ORDERS, "Read orders."), ResourceScope("orders:write", "Create and change orders."))
WEBHOOK_URL: Final = "https://hooks.demo.example/gatehouse"  # in a reserved domain; the user may change it
WEBHOOK_EVENTS: Final = ("user.login.success", "user.joined", "user.removed")
WEB_URIS: Final = ("http://localhost:3000/callback",)  # the default redirect URIs of the applications
MOBILE_URIS: Final = ("http://127.0.0.1/callback", "com.example.demo:/callback")
# The SAML settings of the web application.
SAML: Final = SamlConfiguration(
    enabled=True,
    entity_id="http://localhost:3000/saml/metadata",
    acs_url="http://localhost:3000/saml/acs",
    slo_url="http://localhost:3000/saml/slo",
    name_id_format=NameIdFormat.EMAIL,
)


def member_email(slug: Slug, role: Role) -> Email:
    """Return the address of the member with this role."""
    return Email(f"{role}@{slug}.example")


def customer_email(slug: Slug, name: str) -> Email:
    """Return the address of an end user."""
    return Email(f"{name}@customer.{slug}.example")


def all_addresses() -> list[Email]:
    """Return the addresses of all accounts."""
    members = [member_email(slug, role) for slug in ORGANIZATIONS for role in Role]
    return [PLATFORM_OWNER, *members, *(customer_email(slug, name) for slug in ORGANIZATIONS for name in END_USERS)]
