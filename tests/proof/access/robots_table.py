"""The access matrix for service accounts: which service account can call which route of an organization and of the platform.

All other routes follow from rules (`robot_rows`): no service account acts on an account, and without rights it gets
the same answers as a request without credentials.
"""

from collections.abc import Mapping
from typing import Final

# The service accounts of organization and platform.
ROBOTS: Final = {
    "own": "owner-robot",  # the role owner, without grants
    "adm": "admin-robot",
    "mem": "member-robot",
    "all": "granted-robot",  # the role owner, and all grants
    "nar": "narrow-robot",  # the same with the scope members:read only
    "sus": "suspended-robot",  # in the suspended organization, with the role owner and all grants
}
PLATFORM_ROBOTS: Final = {
    "pla": "platform-robot",  # without grants
    "p-a": "platform-granted",  # all grants
    "p-n": "platform-narrow",  # the scope platform_users:read only
}
VISITOR: Final = "visiting-robot"  # in another organization, with the role owner and all grants
DEAD_ROBOTS: Final = ("revoked-robot", "stopped-robot", "platform-revoked", "platform-stopped")
ALL_ROBOTS: Final = (*ROBOTS.values(), *PLATFORM_ROBOTS.values(), VISITOR, *DEAD_ROBOTS)
# With a program's credentials, but no user.
READS_USERS_ONLY: Final = frozenset({"GET /auth/userinfo", "POST /auth/userinfo", "POST /api/auth/mfa/verify"})
# A route that reads the token if there is a token.
OPTIONAL: Final = frozenset({"POST /api/invitations/accept", "POST /api/invitations/decline"})

OF_ORGANIZATION: Final = """
                                              own  adm  mem  all  nar  sus

GET    {org}                                  200  200  200  200  403  200
PATCH  {org}                                  403  403  403  200  403  403*
DELETE {org}                                  403  403  403  403  403  403*
POST   {org}/select                           403  403  403  403  403  403*

GET    {org}/roles                            200  200  200  200  200  403*
POST   {org}/roles                            403  403  403  201  403  403*
GET    {org}/roles/<role_name>                200  200  200  200  200  403*
PATCH  {org}/roles/<role_name>                403  403  403  200  403  403*
DELETE {org}/roles/<role_name>                403  403  403  204  403  403*

GET    {org}/members                          200  200  200  200  200  403*
GET    {org}/members/export                   200  200  403  200  200  403*
GET    {org}/members/<user_id>                200  200  403  200  200  403*
DELETE {org}/members/<user_id>/sessions       200  200  403  200  403  403*
PATCH  {org}/members/<user_id>                403  403  403  200  403  403*
PATCH  {org}/members/<user_id>#of-admin       403  403  403  200  403  403*
POST   {org}/members/<user_id>                403  403  403  200  403  403*
POST   {org}/members/<user_id>/password-reset 403  403  403  200  403  403*
POST   {org}/members/<user_id>/recovery       403  403  403  403  403  403*
DELETE {org}/members/<user_id>/recovery       403  403  403  403  403  403*
GET    {org}/members/<user_id>/attributes     200  200  403  200  200  403*
PATCH  {org}/members/<user_id>/attributes     403  403  403  200  403  403*
GET    {org}/attributes                       200  200  200  200  200  403*
POST   {org}/attributes                       403  403  403  201  403  403*
PATCH  {org}/attributes/<attribute_name>      403  403  403  200  403  403*
DELETE {org}/attributes/<attribute_name>      403  403  403  204  403  403*
POST   {org}/leave                            403  403  403  403  403  403
POST   {org}/transfer-ownership               403  403  403  403  403  403*

GET    {org}/groups                           200  200  200  200  200  403*
POST   {org}/groups                           403  403  403  201  403  403*
GET    {group}                                200  200  200  200  200  403*
PATCH  {group}                                403  403  403  200  403  403*
DELETE {group}                                403  403  403  204  403  403*
GET    {group}/members                        200  200  200  200  403  403*
POST   {group}/members                        403  403  403  200  403  403*
PUT    {group}/members/<user_id>              403  403  403  204  403  403*
DELETE {group}/members/<user_id>              403  403  403  204  403  403*
GET    {group}/attributes                     200  200  403  200  200  403*
PATCH  {group}/attributes                     403  403  403  200  403  403*
PUT    {group}/role                           403  403  403  403  403  403*
DELETE {group}/role                           403  403  403  403  403  403*
GET    {group}/services                       200  200  200  200  403  403*
GET    {group}/service-roles                  200  200  200  200  403  403*

POST   {org}/invitations                      403  403  403  200  403  403*
POST   {org}/invitations#admin                403  403  403  200  403  403*
POST   {org}/invitations#owner                403  403  403  400  403  403*
POST   {org}/invitations/bulk                 403  403  403  200  403  403*
POST   {org}/invitations/bulk#admin           403  403  403  200  403  403*
GET    {org}/invitations                      200  200  403  200  200  403*
POST   {invitation}                           403  403  403  200  403  403*
POST   {invitation}/resend                    403  403  403  200  403  403*
POST   {invitation}/resend#admin              403  403  403  200  403  403*
POST   {invitation}/accept                    403  403  403  200  403  403*
POST   {invitation}/accept#admin              403  403  403  200  403  403*

GET    {org}/sign-ins                         200  200  403  200  403  403*
GET    {org}/sign-ins/export                  200  200  403  200  403  403*
GET    {org}/audit-log                        200  200  403  200  403  403*
GET    {org}/audit-log/export                 200  200  403  200  403  403*
GET    {org}/audit-log/<entry_id>             200  200  403  200  403  403*
GET    {org}/audit-log/event-types            200  200  403  200  403  403*

POST   {org}/services                         403  403  403  200  403  403*
POST   {org}/registration-tokens              403  403  403  201  403  403*
GET    {org}/registration-tokens              200  200  403  200  403  403*
DELETE {registration-token}                   403  403  403  204  403  403*
GET    {org}/services                         200  200  200  200  403  403*
GET    {service}                              200  200  200  200  403  403*
PATCH  {service}                              403  403  403  200  403  403*
PUT    {service}/logo                         403  403  403  200  403  403*
DELETE {service}/logo                         403  403  403  204  403  403*
POST   {service}/rotate-secret                403  403  403  200  403  403*
GET    {service}/access                       200  200  200  200  403  403*
GET    {service}/sign-in-preview              403  403  403  403  403  403*
PUT    {service}/access                       403  403  403  200  403  403*
GET    {service}/claims                       200  200  200  200  403  403*
PUT    {service}/claims                       403  403  403  200  403  403*
DELETE {service}/claims                       403  403  403  204  403  403*
POST   {service}/claims/preview               403  403  403  403  403  403*
GET    {service}/assignments                  200  200  200  200  403  403*
POST   {service}/assignments                  403  403  403  200  403  403*
PUT    {service}/assignments/<user_id>        403  403  403  204  403  403*
DELETE {service}/assignments/<user_id>        403  403  403  204  403  403*
GET    {service}/authorization                200  200  200  200  403  403*
PUT    {service}/authorization                403  403  403  200  403  403*
POST   {service}/permissions                  403  403  403  201  403  403*
PATCH  {permission}                           403  403  403  200  403  403*
DELETE {permission}                           403  403  403  204  403  403*
GET    {service}/roles                        200  200  200  200  403  403*
POST   {service}/roles                        403  403  403  201  403  403*
GET    {role}                                 200  200  200  200  403  403*
PATCH  {role}                                 403  403  403  200  403  403*
DELETE {role}                                 403  403  403  204  403  403*
GET    {role}/users                           200  200  200  200  403  403*
POST   {role}/users                           403  403  403  200  403  403*
GET    {role}/users/<user_id>                 200  200  200  200  403  403*
PUT    {role}/users/<user_id>                 403  403  403  204  403  403*
DELETE {role}/users/<user_id>                 403  403  403  204  403  403*
GET    {role}/groups                          200  200  200  200  403  403*
PUT    {role}/groups/<group_id>               403  403  403  204  403  403*
DELETE {role}/groups/<group_id>               403  403  403  204  403  403*
GET    {service}/groups                       200  200  200  200  403  403*
PUT    {service}/groups/<group_id>            403  403  403  204  403  403*
DELETE {service}/groups/<group_id>            403  403  403  204  403  403*
DELETE {service}                              403  403  403  403  403  403*

GET    {org}/api-resources                    200  200  200  200  403  403*
POST   {org}/api-resources                    403  403  403  201  403  403*
GET    {resource}                             200  200  200  200  403  403*
PATCH  {resource}                             403  403  403  200  403  403*
GET    {resource}/access                      200  200  200  200  403  403*
PUT    {resource}/access                      403  403  403  200  403  403*
GET    {resource}/external-clients            200  200  200  200  403  403*
PUT    {resource}/external-clients            403  403  403  200  403  403*
GET    {grants}                               200  200  200  200  403  403*
DELETE {grants}/<user_id>/<client_id>         403  403  403  204  403  403*
GET    {resource}/assignments                 200  200  200  200  403  403*
POST   {resource}/assignments                 403  403  403  200  403  403*
PUT    {resource}/assignments/<user_id>       403  403  403  204  403  403*
DELETE {resource}/assignments/<user_id>       403  403  403  204  403  403*
GET    {resource}/groups                      200  200  200  200  403  403*
PUT    {resource}/groups/<group_id>           403  403  403  204  403  403*
DELETE {resource}/groups/<group_id>           403  403  403  204  403  403*
GET    {resource}/clients                     200  200  200  200  403  403*
PUT    {resource}/clients/<client_id>         403  403  403  200  403  403*
DELETE {resource}/clients/<client_id>         403  403  403  204  403  403*
GET    {resource}/credentials                 200  200  200  200  403  403*
POST   {resource}/credentials                 403  403  403  201  403  403*
DELETE {resource}/credentials/<credential_id> 403  403  403  204  403  403*
DELETE {resource}                             403  403  403  204  403  403*

GET    {org}/service-accounts                 403  403  403  403  403  403*
POST   {org}/service-accounts                 403  403  403  403  403  403*
POST   {org}/service-accounts#admin           403  403  403  403  403  403*
POST   {org}/service-accounts#owner           403  403  403  403  403  403*
POST   {org}/service-accounts#granted         403  403  403  403  403  403*
GET    {account}                              403  403  403  403  403  403*
PATCH  {account}                              403  403  403  403  403  403*
GET    {account}/api-resources                403  403  403  403  403  403*
PUT    {account}/api-resources/<resource_id>  403  403  403  403  403  403*
DELETE {account}/api-resources/<resource_id>  403  403  403  403  403  403*
GET    {account}/credentials                  403  403  403  403  403  403*
POST   {account}/credentials                  403  403  403  403  403  403*
DELETE {account}/credentials/<credential_id>  403  403  403  403  403  403*
GET    {account}/created-secrets              403  403  403  403  403  403*
DELETE {account}/created-secrets              403  403  403  403  403  403*
POST   {account}/end                          403  403  403  403  403  403*
DELETE {account}                              403  403  403  403  403  403*

POST   {service}/plans                        403  403  403  200  403  403*
GET    {service}/plans                        200  200  200  200  403  403*
PATCH  {service}/plans/<plan_id>              403  403  403  200  403  403*
DELETE {service}/plans/<plan_id>              403  403  403  204  403  403*
GET    {service}/subscriptions                200  200  200  200  403  403*

POST   {service}/checkout                     403  403  403  403  403  403*

POST   {service}/api-keys                     403  403  403  201  403  403*
GET    {service}/api-keys                     200  200  200  200  403  403*
GET    {service}/api-keys/<api_key_id>        200  200  200  200  403  403*
DELETE {service}/api-keys/<api_key_id>        403  403  403  204  403  403*

PUT    {service}/oauth-credentials/<provider> 403  403  403  200  403  403*
GET    {service}/oauth-credentials/<provider> 200  200  403  200  403  403*
DELETE {service}/oauth-credentials/<provider> 403  403  403  204  403  403*

POST   {service}/saml                         403  403  403  200  403  403*
GET    {service}/saml                         200  200  200  200  403  403*
DELETE {service}/saml                         403  403  403  200  403  403*
POST   {service}/saml/certificate             403  403  403  200  403  403*
GET    {service}/saml/certificate             200  200  200  200  403  403*
POST   {service}/saml/certificate/next        403  403  403  200  403  403*
GET    {service}/saml/certificate/next        200  200  200  200  403  403*
DELETE {service}/saml/certificate/next        403  403  403  204  403  403*
POST   {service}/saml/certificate/activate    403  403  403  200  403  403*
POST   {service}/saml/certificate/undo        403  403  403  200  403  403*
POST   {service}/saml/metadata                200  200  403  200  403  403*
GET    {service}/saml/check                   200  200  200  200  403  403*

GET    {org}/users                            200  200  200  200  403  403*
GET    {org}/users/<user_id>                  200  200  200  200  403  403*
GET    {org}/users/<user_id>/roles            200  200  200  200  403  403*
GET    {org}/users/<user_id>/access           200  200  200  200  403  403*
DELETE {org}/users/<user_id>/sessions         200  200  403  200  403  403*
POST   {org}/users/<user_id>/password-reset   403  403  403  200  403  403*
PUT    {org}/users/<user_id>/block            403  403  403  204  403  403*
DELETE {org}/users/<user_id>/block            403  403  403  204  403  403*
DELETE {org}/users/<user_id>/mfa              403  403  403  204  403  403*
POST   {org}/users/<user_id>/recovery         403  403  403  403  403  403*
DELETE {org}/users/<user_id>/recovery         403  403  403  403  403  403*
GET    {org}/users/<user_id>/attributes       200  200  200  200  403  403*
PATCH  {org}/users/<user_id>/attributes       403  403  403  200  403  403*

GET    {org}/overview                         200  200  200  200  403  403*
GET    {org}/analytics/login-trends           200  200  200  200  403  403*
GET    {org}/analytics/logins-by-service      200  200  200  200  403  403*
GET    {org}/analytics/logins-by-provider     200  200  200  200  403  403*
GET    {org}/analytics/recent-logins          200  200  200  200  403  403*
GET    {org}/analytics/sign-ins               200  200  200  200  403  403*
GET    {org}/analytics/users                  200  200  200  200  403  403*
GET    {org}/analytics/webhook-attempts       200  200  403  200  403  403*
GET    {org}/analytics/scim-requests          200  200  403  200  403  403*

POST   {org}/webhooks                         403  403  403  200  403  403*
GET    {org}/webhooks                         200  200  403  200  403  403*
GET    {org}/webhooks/event-types             200  200  403  200  403  403*
GET    {webhook}                              200  200  403  200  403  403*
PATCH  {webhook}                              403  403  403  200  403  403*
DELETE {webhook}                              403  403  403  200  403  403*
POST   {webhook}/rotate-secret                403  403  403  200  403  403*
POST   {webhook}/test                         200  200  403  200  403  403*
GET    {webhook}/deliveries                   200  200  403  200  403  403*
GET    {webhook}/deliveries/<delivery_id>     200  200  403  200  403  403*
POST   {webhook}/deliveries/<delivery_id>/replay 200  200  403  200  403  403*
POST   {webhook}/deliveries/resend-failed 200  200  403  200  403  403*

GET    {org}/directory-blocks                 200  200  403  200  200  403*
DELETE {org}/directory-blocks/<user_id>       403  403  403  204  403  403*

GET    {org}/personal-tokens                  200  200  403  200  200  403*
DELETE {member-token}                         403  403  403  204  403  403*

POST   {org}/scim-tokens                      403  403  403  200  403  403*
GET    {org}/scim-tokens                      200  200  403  200  403  403*
PATCH  {org}/scim-tokens/<token_id>           403  403  403  200  403  403*
DELETE {org}/scim-tokens/<token_id>           403  403  403  204  403  403*
GET    {org}/scim-requests                    200  200  403  200  403  403*

POST   {org}/smtp                             403  403  403  200  403  403*
GET    {org}/smtp                             200  200  403  200  403  403*
DELETE {org}/smtp                             403  403  403  204  403  403*
POST   {org}/smtp/test                        403  403  403  403  403  403*

GET    {org}/sign-in-policy                   403  403  403  403  403  403*
PUT    {org}/sign-in-policy                   403  403  403  403  403  403*
POST   {org}/sign-in-policy/preview           403  403  403  403  403  403*
GET    {org}/sign-in-policy/break-glass       403  403  403  403  403  403*
PUT    {org}/sign-in-policy/break-glass       403  403  403  403  403  403*
GET    {org}/sign-in-policy/imposed-rules     403  403  403  403  403  403*
DELETE {org}/sign-in-policy/imposed-rules     403  403  403  403  403  403*
GET    {service}/sign-in-policy               403  403  403  403  403  403*
PUT    {service}/sign-in-policy               403  403  403  403  403  403*
DELETE {service}/sign-in-policy               403  403  403  403  403  403*
POST   {service}/sign-in-policy/preview       403  403  403  403  403  403*

POST   {org}/siem                             403  403  403  200  403  403*
GET    {org}/siem                             200  200  403  200  403  403*
DELETE {org}/siem                             403  403  403  204  403  403*
POST   {org}/siem/test                        200  200  403  200  403  403*

GET    {org}/branding                         200  200  200  200  403  403*
PATCH  {org}/branding                         403  403  403  200  403  403*
PUT    {org}/branding/logo                    403  403  403  200  403  403*
DELETE {org}/branding/logo                    403  403  403  204  403  403*

POST   {org}/setup-links                      403  403  403  201  403  403*
GET    {org}/setup-links                      200  200  403  200  403  403*
GET    {setup-link}                           200  200  403  200  403  403*
DELETE {setup-link}                           403  403  403  204  403  403*
POST   {setup-link}/parts/<setup_part>/apply  403  403  403  200  403  403*
POST   {org}/connections                      403  403  403  201  403  403*
GET    {org}/connections                      200  200  403  200  403  403*
GET    {connection}                           200  200  403  200  403  403*
PATCH  {connection}                           403  403  403  200  403  403*
DELETE {connection}                           403  403  403  204  403  403*
POST   {connection}/activate                  403  403  403  200  403  403*
POST   {connection}/deactivate                403  403  403  200  403  403*
GET    {connection}/groups                    200  200  403  200  403  403*
POST   {connection}/groups                    403  403  403  403  403  403*
DELETE {connection}/groups/<mapping_id>       403  403  403  403  403  403*
GET    {connection}/people                    200  200  403  200  403  403*
DELETE {connection}/people/<user_id>          403  403  403  204  403  403*
POST   {connection}/check                     200  200  403  200  403  403*
PUT    {connection}/client-secret             403  403  403  204  403  403*
POST   {connection}/metadata                  403  403  403  200  403  403*
POST   {connection}/keys                      403  403  403  201  403  403*
POST   {connection}/keys/activate             403  403  403  200  403  403*
POST   {connection}/certificates              403  403  403  201  403  403*
DELETE {connection}/certificates/<fingerprint> 403  403  403  204  403  403*

POST   {org}/domains                          403  403  403  200  403  403*
GET    {org}/domains                          200  200  403  200  403  403*
GET    {org}/domains/<domain>                 200  200  403  200  403  403*
GET    {org}/domains/<domain>/accounts        200  200  403  200  403  403*
GET    {org}/domains/<domain>/invitations     200  200  403  200  403  403*
POST   {org}/domains/<domain>/verify          403  403  403  200  403  403*
DELETE {org}/domains/<domain>                 403  403  403  204  403  403*
GET    {org}/hrd                              200  200  403  200  403  403*
PUT    {org}/hrd                              403  403  403  200  403  403*
PUT    {org}/hrd/<domain>                     403  403  403  200  403  403*
DELETE {org}/hrd/<domain>                     403  403  403  204  403  403*
"""

OF_PLATFORM: Final = """
                                              pla  p-a  p-n

GET    {platform}/tiers                       200  200  403
GET    {platform}/organizations               200  200  403
GET    {governed}                             200  200  403
POST   {governed}/approve                     403  200  403
POST   {governed}/reject                      403  200  403
POST   {governed}/suspend                     403  200  403
POST   {governed}/activate                    403  200  403
PATCH  {governed}/tier                        403  200  403
DELETE {governed}/admin-networks              403  403  403
DELETE {governed}                             403  403  403

GET    {platform}/users/search                200  200  200
GET    {platform}/users/<user_id>             200  200  200
POST   {platform}/users/<user_id>/end-sessions 403  200  403
POST   {platform}/users/<user_id>/password-reset 403  200  403
GET    {platform}/users/<user_id>/mfa/status  200  200  200
DELETE {platform}/users/<user_id>/mfa         403  200  403
POST   {platform}/users/<user_id>/recovery    403  403  403
DELETE {platform}/users/<user_id>/recovery    403  403  403
POST   {platform}/users/<user_id>/deactivate  403  200  403
POST   {platform}/users/<user_id>/reactivate  403  200  403
GET    {platform}/users/<user_id>/mfa/events  200  200  200
GET    {platform}/users/<user_id>/privacy-log 200  200  200
GET    {platform}/sign-ins                    200  200  403
GET    {platform}/sign-ins/export             200  200  403
GET    {platform}/audit-log                   200  200  403
GET    {platform}/audit-log/export            200  200  403
GET    {platform}/audit-log/<entry_id>        200  200  403
GET    {platform}/mfa/metrics                 200  200  200
GET    {platform}/mfa/suspicious              200  200  200
POST   {platform}/impersonate/<user_id>       403  403  403
GET    {platform}/health                      200  200  403
GET    {platform}/health/checks               200  200  403
GET    {platform}/analytics/sign-ins          200  200  403
GET    {platform}/analytics/users             200  200  403
GET    {platform}/analytics/webhook-attempts  200  200  403
GET    {platform}/analytics/scim-requests     200  200  403
GET    {platform}/settings                    200  200  403
GET    {platform}/connections                 200  200  403
PUT    {platform}/connections/<provider>/logo 403  403  403
DELETE {platform}/connections/<provider>/logo 403  403  403
GET    {platform}/sign-in-policy              403  403  403
PUT    {platform}/sign-in-policy              403  403  403
POST   {platform}/sign-in-policy/preview      403  403  403
GET    {platform}/owners                      200  200  200
POST   {platform}/owners                      403  403  403
DELETE {platform}/owners/<user_id>            403  403  403

GET    {platform}/service-accounts            403  403  403
POST   {platform}/service-accounts            403  403  403
GET    {robot}                                403  403  403
PATCH  {robot}                                403  403  403
GET    {robot}/credentials                    403  403  403
POST   {robot}/credentials                    403  403  403
DELETE {robot}/credentials/<credential_id>    403  403  403
DELETE {robot}                                403  403  403
"""


def robot_rows(
    rows: Mapping[str, dict[str, str]], of_organization: Mapping[str, dict[str, str]], of_platform: Mapping[str, dict[str, str]]
) -> dict[str, dict[str, str]]:
    """Return the expected status for every service account by route. `rows` are the rows for all other callers."""
    return {route: _row(route, row, of_organization, of_platform) for route, row in rows.items()}


def _row(
    route: str,
    row: Mapping[str, str],
    of_organization: Mapping[str, dict[str, str]],
    of_platform: Mapping[str, dict[str, str]],
) -> dict[str, str]:
    dead = dict.fromkeys(DEAD_ROBOTS, "401")
    if route in of_organization:
        return dict.fromkeys(ALL_ROBOTS, "403") | of_organization[route] | dead
    if route in of_platform:
        return dict.fromkeys(ALL_ROBOTS, "403") | of_platform[route] | dead
    if route in READS_USERS_ONLY:
        return dict.fromkeys(ALL_ROBOTS, "401")
    if route in OPTIONAL or (row["anonymous"] == "401" and row["stranger"] != "401"):  # on a user's account
        return dict.fromkeys(ALL_ROBOTS, "403") | dead
    return dict.fromkeys(ALL_ROBOTS, row["anonymous"]) | {"suspended-robot": row["suspended"]}
