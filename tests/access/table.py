"""Who may call what, as a table; and the request that each route is tried with."""

from collections.abc import Mapping
from typing import Final

from entrypoints.http.pages import asset_url
from tests.access.calls import Request

# The columns, and which caller of the world each of them is. The owners of the suspended and of the pending organization call about
# their own, everybody else about the home organization.
COLUMNS: Final = {
    "ano": "anonymous",
    "str": "stranger",  # who has an account, and no membership
    "gue": "guest",  # whom the organization has invited
    "for": "foreign",  # the owner of another organization
    "mem": "member",
    "adm": "admin",
    "own": "owner",
    "pla": "platform",  # a platform owner, who is not a member
    "a-m": "as-member",  # the same, impersonating the member
    "a-o": "as-owner",  # or the owner
    "sus": "suspended",
    "pen": "pending",
}

# 403* is ORGANIZATION_NOT_ACTIVE, any other 403 FORBIDDEN. `{org}` is /api/organizations/<org_slug>.
MATRIX: Final = """
                                                      ano  str  gue  for  mem  adm  own  pla  a-m  a-o  sus  pen

POST   /api/auth/register                             200  200  200  200  200  200  200  200  200  200  200  200
GET    /auth/verify-email                             200  200  200  200  200  200  200  200  200  200  200  200
POST   /api/auth/forgot-password                      200  200  200  200  200  200  200  200  200  200  200  200
POST   /api/auth/reset-password                       200  200  200  200  200  200  200  200  200  200  200  200
GET    /auth/reset-password                           200  200  200  200  200  200  200  200  200  200  200  200
POST   /auth/reset-password                           200  200  200  200  200  200  200  200  200  200  200  200
POST   /api/auth/resend-verification                  200  200  200  200  200  200  200  200  200  200  200  200
GET    /api/user                                      401  200  200  200  200  200  200  200  200  200  200  200
PATCH  /api/user                                      401  200  200  200  200  200  200  200  403  403  200  200
POST   /api/user/set-password                         401  200  200  200  200  200  200  200  403  403  200  200
POST   /api/user/change-password                      401  200  200  200  200  200  200  200  403  403  200  200

POST   /api/auth/login                                200  200  200  200  200  200  200  200  200  200  200  200
POST   /api/auth/refresh                              200  200  200  200  200  200  200  200  200  200  403* 403*
POST   /api/auth/logout                               401  200  200  200  200  200  200  200  200  200  200  200

POST   /api/organizations                             401  200  200  200  200  200  200  200  200  200  200  200
GET    /api/organizations                             401  200  200  200  200  200  200  200  200  200  200  200
GET    {org}                                          401  403  403  403  200  200  200  403  200  200  200  200
PATCH  {org}                                          401  403  403  403  403  200  200  403  403  200  403* 403*
DELETE {org}                                          401  403  403  403  403  403  204  403  403  403  403* 403*
POST   {org}/select                                   401  403  403  403  200  200  200  403  200  200  403* 403*

GET    {org}/members                                  401  403  403  403  200  200  200  403  200  200  403* 403*
PATCH  {org}/members/<user_id>                        401  403  403  403  403  403  200  403  403  200  403* 403*
POST   {org}/members/<user_id>                        401  403  403  403  403  200  200  403  403  200  403* 403*
POST   {org}/transfer-ownership                       401  403  403  403  403  403  200  403  403  403  403* 403*

POST   {org}/invitations                              401  403  403  403  403  200  200  403  403  200  403* 403*
GET    {org}/invitations                              401  403  403  403  403  200  200  403  403  200  403* 403*
POST   {org}/invitations/<invitation_id>              401  403  403  403  403  200  200  403  403  200  403* 403*
POST   {org}/invitations/<invitation_id>/accept       401  403  403  403  403  200  200  403  403  403  403* 403*
GET    /api/invitations                               401  200  200  200  200  200  200  200  200  200  200  200
POST   /api/invitations/accept                        200  400  200  400  400  400  400  400  403  403  403* 403*
POST   /api/invitations/decline                       200  200  200  200  200  200  200  200  200  200  200  200
GET    /invitations/accept                            301  301  301  301  301  301  301  301  301  301  301  301
GET    /app/invitations/accept                        200  200  200  200  200  200  200  200  200  200  200  200
POST   /app/invitations/accept                        200  200  200  200  200  200  200  200  200  200  403* 403*
POST   /app/invitations/decline                       200  200  200  200  200  200  200  200  200  200  200  200

GET    {org}/audit-log                                401  403  403  403  403  200  200  403  403  200  403* 403*
GET    {org}/audit-log/event-types                    401  403  403  403  403  200  200  403  403  200  403* 403*

GET    /api/platform/tiers                            401  403  403  403  403  403  403  200  403  403  403  403
GET    /api/platform/organizations                    401  403  403  403  403  403  403  200  403  403  403  403
POST   /api/platform/organizations/<org_id>/approve   401  403  403  403  403  403  403  200  403  403  403  403
POST   /api/platform/organizations/<org_id>/reject    401  403  403  403  403  403  403  200  403  403  403  403
POST   /api/platform/organizations/<org_id>/suspend   401  403  403  403  403  403  403  200  403  403  403  403
POST   /api/platform/organizations/<org_id>/activate  401  403  403  403  403  403  403  200  403  403  403  403
PATCH  /api/platform/organizations/<org_id>/tier      401  403  403  403  403  403  403  200  403  403  403  403
DELETE /api/platform/organizations/<org_id>           401  403  403  403  403  403  403  204  403  403  403  403

GET    /health                                        200  200  200  200  200  200  200  200  200  200  200  200
GET    /health/live                                   200  200  200  200  200  200  200  200  200  200  200  200
GET    /health/ready                                  200  200  200  200  200  200  200  200  200  200  200  200
GET    /metrics                                       200  200  200  200  200  200  200  200  200  200  200  200
GET    /.well-known/jwks.json                         200  200  200  200  200  200  200  200  200  200  200  200
GET    /openapi.json                                  200  200  200  200  200  200  200  200  200  200  200  200
GET    /docs                                          200  200  200  200  200  200  200  200  200  200  200  200
GET    /assets/<name>                                 200  200  200  200  200  200  200  200  200  200  200  200
GET    /                                              200  200  200  200  200  200  200  200  200  200  200  200
"""


ORG: Final = "/api/organizations/<org_slug>"

# What makes the call succeed for those who may make it; nothing need be said of a route that needs nothing.
REQUESTS: Final[Mapping[str, Request]] = {
    "POST /api/auth/register": Request({"email": "newcomer@anywhere.example", "password": "a good password"}),
    "GET /auth/verify-email": Request(query={"token": "{verification_token}"}),
    "POST /api/auth/forgot-password": Request({"email": "{own_email}"}),
    "POST /api/auth/reset-password": Request({"token": "{reset_token}", "new_password": "another good password"}),
    "GET /auth/reset-password": Request(query={"token": "{reset_token}"}),
    "POST /auth/reset-password": Request(form={"token": "{reset_token}", "new_password": "another good password"}),
    "POST /api/auth/resend-verification": Request({"email": "{own_email}"}),
    "PATCH /api/user": Request({"email": "moved@anywhere.example"}),
    "POST /api/user/set-password": Request(
        {"new_password": "another good password"}, given="update users set password_hash = null where id = '{own_id}'"
    ),
    "POST /api/user/change-password": Request({"current_password": "{password}", "new_password": "another good password"}),
    "POST /api/auth/login": Request({"email": "{own_email}", "password": "{password}"}),
    "POST /api/auth/refresh": Request({"refresh_token": "{refresh_token}"}),
    "POST /api/organizations": Request({"slug": "another", "name": "Another One"}),
    f"PATCH {ORG}": Request({"name": "A New Name"}),
    f"PATCH {ORG}/members/<user_id>": Request({"role": "admin"}),
    f"POST {ORG}/transfer-ownership": Request({"new_owner_user_id": "{user_id}"}),
    f"POST {ORG}/invitations": Request({"email": "newcomer@anywhere.example", "role": "member"}),
    "POST /api/invitations/accept": Request({"token": "{invitation_token}"}),
    "POST /api/invitations/decline": Request({"token": "{invitation_token}"}),
    "GET /invitations/accept": Request(query={"token": "{invitation_token}"}),
    "GET /app/invitations/accept": Request(query={"token": "{invitation_token}"}),
    "POST /app/invitations/accept": Request(form={"token": "{invitation_token}"}),
    "POST /app/invitations/decline": Request(form={"token": "{invitation_token}"}),
    f"GET {ORG}/audit-log": Request(query={"target_type": "user"}),  # without it there is no asking for a target
    "POST /api/platform/organizations/<org_id>/approve": Request(
        {}, given="update organizations set status = 'pending' where id = '{org_id}'"
    ),
    "POST /api/platform/organizations/<org_id>/reject": Request(
        {"reason": "not a company"}, given="update organizations set status = 'pending' where id = '{org_id}'"
    ),
    "POST /api/platform/organizations/<org_id>/suspend": Request({}),
    "POST /api/platform/organizations/<org_id>/activate": Request(
        {}, given="update organizations set status = 'suspended' where id = '{org_id}'"
    ),
    "PATCH /api/platform/organizations/<org_id>/tier": Request({"tier_id": "{tier_id}", "max_users": 7}),
    "GET /assets/<name>": Request(things={"name": asset_url("icon.svg").removeprefix("/assets/")}),
}


def read_matrix(text: str = MATRIX) -> dict[str, dict[str, str]]:
    """Route, such as `GET /api/user`, to the expected status of each caller. Raises ValueError where a row is not like the others."""
    header, *lines = (line.split() for line in text.splitlines() if line.strip())
    rows: dict[str, dict[str, str]] = {}
    for method, path, *cells in lines:
        route = f"{method} {path.replace('{org}', ORG)}"
        if len(cells) != len(header) or route in rows:
            raise ValueError(f"the row of {route} has {len(cells)} cells where there are {len(header)} columns, or is there twice")
        rows[route] = dict(zip((COLUMNS[name] for name in header), cells, strict=True))
    return rows
