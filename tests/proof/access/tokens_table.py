"""The access matrix for personal access tokens, from their users' rows and lists of routes.

A token with all scopes gets in its organization what its user gets, except on the routes that only a person can use. A
token for the own account gets what its user gets on the routes listed here. All other routes refuse a token, or
ignore it.
"""

from collections.abc import Mapping
from typing import Final

ORG: Final = "/api/organizations/<org_slug>"
SAML_LOGIN: Final = f"GET {ORG}/services/<service_slug>/saml/login"  # on the user's account, with the organization in its path
# The tokens with all scopes that act in the organization, with the user who has the same rights.
TOKENS_OF_MEMBERS: Final = {"owner-token": "owner", "admin-token": "admin", "member-token": "member"}
NARROW: Final = "narrow-token"  # the owner's token with the scope members:read only
ELSEWHERE: Final = "elsewhere-token"  # a member of two organizations has it for the second organization
SUSPENDED: Final = "suspended-token"  # the suspended organization's owner has it
# Tokens for the own account: of the owner with all scopes, of the owner with account:read only, and of a platform owner with
# all existing scopes.
TOKENS_OF_ACCOUNTS: Final = {"account-token": "owner", "reading-token": "owner", "platform-token": "platform"}
ENDED: Final = "ended-token"
ALL_TOKENS: Final = (*TOKENS_OF_MEMBERS, NARROW, ELSEWHERE, SUSPENDED, *TOKENS_OF_ACCOUNTS, ENDED)

# Routes about an organization that only a person can use.
PERSONS_ONLY: Final = frozenset(
    {
        f"DELETE {ORG}",
        f"POST {ORG}/select",
        f"POST {ORG}/leave",
        f"POST {ORG}/transfer-ownership",
        f"POST {ORG}/roles",
        f"PATCH {ORG}/roles/<role_name>",
        f"DELETE {ORG}/roles/<role_name>",
        f"PATCH {ORG}/members/<user_id>",
        f"PUT {ORG}/groups/<group_id>/role",
        f"DELETE {ORG}/groups/<group_id>/role",
        f"POST {ORG}/connections/<connection_slug>/groups",
        f"DELETE {ORG}/connections/<connection_slug>/groups/<mapping_id>",
        f"POST {ORG}/invitations/<invitation_id>/accept",
        f"DELETE {ORG}/services/<service_slug>",
        f"DELETE {ORG}/personal-tokens/<personal_token_id>",
        f"POST {ORG}/smtp/test",
        f"GET {ORG}/sign-in-policy",
        f"PUT {ORG}/sign-in-policy",
        f"POST {ORG}/sign-in-policy/preview",
        f"GET {ORG}/sign-in-policy/break-glass",
        f"PUT {ORG}/sign-in-policy/break-glass",
        f"GET {ORG}/sign-in-policy/imposed-rules",
        f"DELETE {ORG}/sign-in-policy/imposed-rules",
        f"GET {ORG}/services/<service_slug>/sign-in-policy",
        f"PUT {ORG}/services/<service_slug>/sign-in-policy",
        f"DELETE {ORG}/services/<service_slug>/sign-in-policy",
        f"POST {ORG}/services/<service_slug>/sign-in-policy/preview",
        f"DELETE {ORG}/users/<user_id>/mfa",
        *(f"{method} {ORG}/{users}/<user_id>/recovery" for method in ("POST", "DELETE") for users in ("users", "members")),
        f"GET {ORG}/services/<service_slug>/sign-in-preview",
        f"POST {ORG}/services/<service_slug>/claims/preview",
        f"POST {ORG}/services/<service_slug>/checkout",
        f"GET {ORG}/service-accounts",
        f"POST {ORG}/service-accounts",
        f"GET {ORG}/service-accounts/<account_id>",
        f"PATCH {ORG}/service-accounts/<account_id>",
        f"DELETE {ORG}/service-accounts/<account_id>",
        f"GET {ORG}/service-accounts/<account_id>/api-resources",
        f"PUT {ORG}/service-accounts/<account_id>/api-resources/<resource_id>",
        f"DELETE {ORG}/service-accounts/<account_id>/api-resources/<resource_id>",
        f"GET {ORG}/service-accounts/<account_id>/created-secrets",
        f"DELETE {ORG}/service-accounts/<account_id>/created-secrets",
        f"GET {ORG}/service-accounts/<account_id>/credentials",
        f"POST {ORG}/service-accounts/<account_id>/credentials",
        f"DELETE {ORG}/service-accounts/<account_id>/credentials/<credential_id>",
        f"POST {ORG}/service-accounts/<account_id>/end",
        SAML_LOGIN,
    }
)
# The routes that the scope members:read opens.
READS_MEMBERS: Final = frozenset(
    {
        f"GET {ORG}/roles",
        f"GET {ORG}/roles/<role_name>",
        f"GET {ORG}/members",
        f"GET {ORG}/members/<user_id>",
        f"GET {ORG}/groups",
        f"GET {ORG}/groups/<group_id>",
        f"GET {ORG}/groups/<group_id>/attributes",
        f"GET {ORG}/members/export",
        f"GET {ORG}/invitations",
        f"GET {ORG}/directory-blocks",
        f"GET {ORG}/personal-tokens",
        f"GET {ORG}/members/<user_id>/attributes",
        f"GET {ORG}/attributes",
    }
)
READS_ACCOUNT: Final = frozenset(
    {
        "GET /api/user",
        "GET /api/user/devices",
        "GET /api/user/devices/<device_id>",
        "GET /api/user/devices/<device_id>#other",
        "GET /api/user/applications",
        "GET /api/user/consents",
        "GET /api/user/attributes",
        "GET /api/organizations",
    }
)
WRITES_ACCOUNT: Final = frozenset(
    {
        "PATCH /api/user/devices/<device_id>",
        "PATCH /api/user/devices/<device_id>#other",
        "DELETE /api/user/devices/<device_id>",
        "DELETE /api/user/devices/<device_id>#other",
        "DELETE /api/user/devices/<device_id>#current",
        "DELETE /api/user/consents/<service_id>",
        "PATCH /api/user/attributes",
    }
)
# With a bearer token that never belongs to a user.
NOT_FOR_USERS: Final = ("/scim/", "/api/service/", "/access/v1/", "/setup/steps")
# Further readers of the Authorization header: they know no personal access tokens.
READS_OTHER_TOKENS: Final = frozenset({"GET /auth/userinfo", "POST /auth/userinfo", "POST /api/auth/mfa/verify"})
OPTIONAL: Final = frozenset({"POST /api/invitations/accept", "POST /api/invitations/decline"})


def token_rows(rows: Mapping[str, dict[str, str]]) -> dict[str, dict[str, str]]:
    """Return the expected status for every token by route. `rows` are the rows for all other callers."""
    return {route: _row(route, row) for route, row in rows.items()}


def _row(route: str, row: Mapping[str, str]) -> dict[str, str]:
    path = route.partition(" ")[2]
    if (row["anonymous"] != "401" and route not in OPTIONAL) or path.startswith(NOT_FOR_USERS) or route in READS_OTHER_TOKENS:
        if route in READS_OTHER_TOKENS:
            return dict.fromkeys(ALL_TOKENS, "401!")
        return dict.fromkeys(ALL_TOKENS, row["anonymous"]) | ({} if row["anonymous"] == "401" else {SUSPENDED: row["suspended"]})
    cells = dict.fromkeys(ALL_TOKENS, "403") | {ENDED: "401"}
    if path.partition("#")[0].startswith(ORG):
        if route.partition("#")[0] not in PERSONS_ONLY:
            cells |= {token: row[user] for token, user in TOKENS_OF_MEMBERS.items()}
            cells[SUSPENDED] = row["suspended"]
            if route in READS_MEMBERS:
                cells[NARROW] = row["owner"]
        elif row["suspended"] == "403*" and route != SAML_LOGIN:  # the organization's state is checked first
            cells[SUSPENDED] = "403*"
    elif route in READS_ACCOUNT | WRITES_ACCOUNT:
        tokens = [token for token in TOKENS_OF_ACCOUNTS if token != "reading-token" or route in READS_ACCOUNT]
        cells |= {token: row[TOKENS_OF_ACCOUNTS[token]] for token in tokens}
    return cells
