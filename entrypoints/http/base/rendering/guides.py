"""The console's guides: the documentation page that a console page links to."""

import re
import tomllib
from collections.abc import Mapping
from functools import cache
from types import MappingProxyType
from typing import Final

from entrypoints.http.base.rendering.assets import HTTP

FOLDER: Final = HTTP.parents[1] / "docs"
HOME: Final = "/docs/"

# By template. A page without an entry explains itself.
_GUIDES: Final[Mapping[str, str]] = MappingProxyType(
    {
        "accounts/new_passkey.html": "guides/passkeys",
        "accounts/passkey.html": "guides/passkeys",
        "accounts/personal_tokens.html": "guides/personal-access-tokens",
        "accounts/security.html": "guides/passkeys#for-users",
        "applications/access.html": "guides/access",
        "applications/analytics.html": "guides/analytics",
        "applications/figures.html": "guides/analytics",
        "applications/api_keys.html": "reference/api",
        "applications/authorization.html": "guides/roles-and-groups#roles-of-an-application",
        "applications/application.html": "guides/web-application",
        "applications/applications.html": "guides/web-application",
        "applications/claims.html": "guides/claims",
        "applications/created_application.html": "guides/openid-connect",
        "applications/plans.html": "guides/billing",
        "applications/provider.html": "guides/identity-providers",
        "applications/providers.html": "guides/identity-providers",
        "applications/saml.html": "guides/saml",
        "applications/sign_in_policy.html": "guides/require-a-second-factor",
        "applications/subscriptions.html": "guides/billing",
        "applications/access_reasons.html": "guides/roles-and-groups#what-may-this-user-do",
        "applications/test_sign_in.html": "guides/openid-connect",
        "federation/connections.html": "guides/identity-providers#set-up-a-connection-of-your-organization",
        "federation/connection.html": "guides/identity-providers#set-up-a-connection-of-your-organization",
        "federation/connection_test.html": "guides/identity-providers#set-up-a-connection-of-your-organization",
        "federation/test_provider.html": "guides/test-provider",
        "eventing/deliveries.html": "guides/webhooks",
        "eventing/log.html": "guides/audit-log",
        "eventing/new_webhook.html": "guides/webhooks",
        "eventing/siem.html": "guides/siem",
        "eventing/webhook.html": "guides/webhooks",
        "eventing/webhooks.html": "guides/webhooks",
        "platform/health.html": "operating/alerts",
        "platform/owners.html": "operating/lost-owner",
        "platform/settings.html": "reference/settings",
        "setup/link.html": "guides/set-up-links",
        "setup/links.html": "guides/set-up-links",
        "tenancy/new_role.html": "guides/roles",
        "tenancy/role.html": "guides/roles",
        "tenancy/roles.html": "guides/roles",
        "programs/api_resource.html": "guides/api-resources",
        "programs/api_resources.html": "guides/api-resources",
        "programs/external_clients.html": "guides/assistants",
        "programs/registration_tokens.html": "guides/assistants#register-an-application-with-a-token",
        "programs/service_account.html": "guides/service-accounts",
        "programs/service_accounts.html": "guides/service-accounts",
        "provisioning/blocks.html": "guides/scim",
        "provisioning/directory.html": "guides/scim",
        "provisioning/requests.html": "guides/scim",
        "tenancy/attribute.html": "guides/claims#attributes-of-your-organization",
        "tenancy/attributes.html": "guides/claims#attributes-of-your-organization",
        "tenancy/branding.html": "guides/branding-and-mail",
        "tenancy/domain.html": "guides/branding-and-mail#verify-your-domains",
        "tenancy/domain_routes.html": "guides/identity-providers#send-users-of-a-domain-to-a-provider",
        "tenancy/domains.html": "guides/branding-and-mail#verify-your-domains",
        "tenancy/group.html": "guides/groups",
        "tenancy/group_applications.html": "guides/groups",
        "tenancy/group_attributes.html": "guides/claims#attributes-of-your-organization",
        "tenancy/group_role.html": "guides/groups#give-a-role-of-the-organization",
        "tenancy/group_settings.html": "guides/groups",
        "tenancy/groups.html": "guides/groups",
        "tenancy/mail_server.html": "guides/branding-and-mail#use-your-own-mail-server",
        "tenancy/break_glass.html": "guides/break-glass",
        "tenancy/sign_in_policy.html": "guides/require-a-second-factor",
        "tenancy/personal_tokens.html": "guides/personal-access-tokens",
    }
)
GUIDES: Final[Mapping[str, str]] = MappingProxyType({template: HOME + page for template, page in _GUIDES.items()})


@cache
def navigation() -> Mapping[str, Mapping[str, str]]:
    """Return the navigation groups: every page's label and address."""
    groups = tomllib.loads((FOLDER / "navigation.toml").read_text("utf-8"))
    return {group: {label: address_of(file) for label, file in pages.items()} for group, pages in groups.items()}


def address_of(file: str) -> str:
    """Return the address for a file below docs/, such as `/docs/guides/saml` for `guides/saml.md`."""
    return HOME + re.sub(r"(^|/)index$", "", file.removesuffix(".md"))
