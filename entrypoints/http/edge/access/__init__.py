"""Access decorators.

Every route has a single access decorator, directly below the route decorator, so that it runs first.

A route that changes something declares its effect: `@member(Capability.MEMBERS_MANAGE, GIVES)`.
"""

from functools import partial
from typing import Unpack

from core.kernel.rate_limits import BILLING
from core.kernel.roles import Capability, Permission
from entrypoints.http.edge.access import callers
from entrypoints.http.edge.access.declaration import Access, Credentials, Restricted
from entrypoints.http.edge.access.effects import CHANGES, GIVES, PROTOCOL, EffectRow
from entrypoints.http.edge.access.guards import AccessDecorator, Changes

anyone = AccessDecorator(Access("anyone", default=PROTOCOL), callers.as_anyone)
# OAuth clients. The body names the client; the route authenticates it and counts its requests.
application = AccessDecorator(Access("application", default=PROTOCOL, limit=None), callers.as_anyone)
# Health checks and metrics. They have no rate limit, so that load balancers and scrapers always get
# a response.
operations = AccessDecorator(Access("operations", limit=None), callers.as_anyone)
person = AccessDecorator(Access("person", Credentials.ACCESS_TOKEN), callers.as_person)
# The statement that reads the session also reads the profile, for `own_profile()`.
person_with_profile = AccessDecorator(Access("person", Credentials.ACCESS_TOKEN), callers.as_person_with_profile)
# The organization in a token is only context. Routes outside organizations, such as signing out,
# must work even if the user has left the token's organization.
person_anywhere = AccessDecorator(Access("person_anywhere", Credentials.ACCESS_TOKEN), partial(callers.as_person, allow_former_users=True))
verified_person = AccessDecorator(
    Access("verified_person", Credentials.ACCESS_TOKEN, verified=True), partial(callers.as_person, allow_former_users=True)
)
# The token may be missing. If a token is sent, it must be valid.
person_if_present = AccessDecorator(Access("person_if_present", Credentials.OPTIONAL_ACCESS_TOKEN), callers.as_person_if_present)

# Signed-in users with an access token, or with our pages' session cookie. Forms on our pages carry
# a form token; a GET must be safe to open from any page. It redirects to the sign-in page.
person_or_browser = AccessDecorator(Access("person_or_browser", Credentials.ACCESS_TOKEN_OR_COOKIE), callers.as_person_or_browser)
# A pending sign-in, with its pre-auth token (security J-8).
pre_auth = AccessDecorator(Access("pre_auth", Credentials.PRE_AUTH_TOKEN, default=PROTOCOL), callers.as_pre_auth)
# The payment provider, authenticated by the signature over the raw body (security H-1).
signed_by_billing = AccessDecorator(
    Access("signed_by_billing", Credentials.BILLING_SIGNATURE, default=CHANGES, limit=BILLING), callers.as_billing
)
# A directory with a SCIM token. Its requests count per organization, after authentication.
scim_client = AccessDecorator(Access("scim_client", Credentials.SCIM_TOKEN, default=GIVES), callers.as_scim_client)
# A browser that opened a set-up link. Its reader has no account, and no rights in the organization.
setup_link = AccessDecorator(Access("setup_link", Credentials.SETUP_COOKIE, default=CHANGES), callers.as_setup_link)
# A browser with a session on our pages. A browser without a session is redirected to the sign-in page. In the console,
# a platform owner can act as another user; the sign-in pages know only the browser's own user.
sign_in_session = AccessDecorator(Access("sign_in_session", Credentials.COOKIE), callers.as_browser)
page_session = AccessDecorator(Access("page_session", Credentials.COOKIE), callers.as_console_user)
platform_page = AccessDecorator(Access("platform_page", Credentials.COOKIE), callers.as_console_user)


def _in_organization(capability: Capability) -> Changes:
    """Return the rule for sessions that began at the organization's connection. A connection's admins can make it assert the owner."""
    return Changes(restricted=Restricted.NO if capability is Capability.ORGANIZATION_OWN else Restricted.ITS_ORGANIZATION)


def member(capability: Capability, effect: EffectRow | None = None, **changes: Unpack[Changes]) -> AccessDecorator:
    """Return the decorator for members and service accounts with the capability in the organization `<org_slug>`."""
    access = Access("member", Credentials.ACCESS_TOKEN, capability=capability, declared=effect, **_in_organization(capability) | changes)
    return AccessDecorator(access, callers.as_member)


def platform_owner(capability: Capability, effect: EffectRow | None = None, **changes: Unpack[Changes]) -> AccessDecorator:
    """Return the decorator for platform owners, and for the platform's service accounts with a scope for the capability."""
    return AccessDecorator(
        Access("platform_owner", Credentials.ACCESS_TOKEN, capability=capability, declared=effect, **changes), callers.as_platform_owner
    )


def member_page(capability: Capability, effect: EffectRow | None = None, **changes: Unpack[Changes]) -> AccessDecorator:
    """Return the decorator for pages that a member with the capability opens in the organization `<org_slug>`.

    A browser without a session is redirected to the sign-in page, and a member who has not confirmed their membership
    to the page where they can. The rule is the same as on the API route that does the same.
    """
    access = Access("member_page", Credentials.COOKIE, capability=capability, declared=effect, **_in_organization(capability) | changes)
    return AccessDecorator(access, callers.as_browser_of_member)


def service_key(permission: Permission) -> AccessDecorator:
    """Return the decorator for API keys with the permission."""
    return AccessDecorator(Access("service_key", Credentials.API_KEY, permission=permission, default=GIVES), callers.as_service_key)
