"""The access matrix: which caller can call which route, and the request for every route."""

import json
import re
from collections.abc import Mapping
from typing import Any, Final

from core.kernel.connections import CODEHOST, PLATFORM_CONNECTIONS
from core.provisioning.model.schemas import GROUP_URN, USER_URN
from entrypoints.http.api.provisioning.protocol import PATCH_URN
from entrypoints.http.base.rendering.assets import asset_url
from tests.fakes.images import png
from tests.proof.access.calls import Request, without_variant
from tests.proof.access.console import console_operations, console_rows, fresh_pages, personal_pages
from tests.proof.access.robots_table import ALL_ROBOTS, OF_ORGANIZATION, OF_PLATFORM, PLATFORM_ROBOTS, ROBOTS, robot_rows
from tests.proof.access.tokens_table import ALL_TOKENS, token_rows
from tests.support.mfa import USED_IN_SESSIONS
from tests.support.saml import encode_base64, identity_provider_metadata, service_provider_metadata

# The columns, with their callers. Members of the suspended and the pending organization call their
# own organization. Everyone else calls the home organization.
PEOPLE: Final = {
    "ano": "anonymous",
    "str": "stranger",  # an account without a membership
    "gue": "guest",  # invited by the organization
    "for": "foreign",  # another organization's owner
    "mem": "member",
    "adm": "admin",
    "own": "owner",
    "pla": "platform",  # a platform owner, who is not a member
    "a-m": "as-member",  # impersonating the member
    "a-o": "as-owner",  # impersonating the owner
    "sus": "suspended",
    "pen": "pending",
    # An application with the service token of
    "t-e": "application",  # an end user without a membership
    "t-f": "visiting-application",  # another organization's end user
    "t-o": "owner-application",  # the owner
    "t-p": "platform-application",  # a platform owner
    "t-s": "suspended-application",  # the suspended organization's end user
    "wai": "waiting",  # a member between password and second factor, with a pre-auth token
    "mfa": "with-mfa",  # the same member with a session
}
KEYS: Final = {
    "key": "key",  # all permissions
    "k-r": "reading-key",  # all permissions to read
    "k-w": "writing-key",  # all other permissions
    "k-2": "other-key",  # all permissions for another service in the organization
    "k-f": "visiting-key",  # another organization's key
    "k-s": "suspended-key",  # the suspended organization's key
    "k-x": "expired-key",
}
# Directories, with a SCIM token.
DIRECTORIES: Final = {
    "dir": "directory",
    "d-f": "visiting-directory",  # another organization's directory
    "d-s": "suspended-directory",  # the suspended organization's directory
    "d-x": "expired-directory",
}
# A browser that opened the organization's set-up link, without a session.
SETUP_LINKS: Final = {"set": "setup-link"}
# Browsers on our pages, with a session cookie.
BROWSERS: Final = {
    "bro": "browser",  # the owner's browser
    "b-m": "browser-with-mfa",  # from the member with a second factor
    "b-s": "suspended-browser",  # the suspended organization's owner has it
    "b-x": "ended-browser",  # an ended session
}
# Further browsers, for the console pages only.
END_IMPERSONATION: Final = "POST /app/impersonation/end"
CONSOLE_BROWSERS: Final = ("admin-browser", "stranger-browser", "platform-browser", "impersonating-browser")

# External clients with a token for the organization's API resource: a client with a document, and a client that registered itself. No route
# accepts these tokens.
EXTERNAL_CLIENTS: Final = ("external-client", "registered-client")

# The cells for refused calls, and their error codes. Pages redirect to the sign-in page instead.
TO_SIGN_IN: Final = "303*"
NO_ACCESS_TOKEN: Final = "401!"
CODES: Final = {"401": "UNAUTHORIZED", NO_ACCESS_TOKEN: "JWT_ERROR", "403": "FORBIDDEN", "403*": "ORGANIZATION_NOT_ACTIVE", TO_SIGN_IN: ""}

# SHORT has `{org}` and further paths. A route with several variants has a row per variant, with a
# `#` and the variant's name.
MATRIX: Final = """
                                              ano  str  gue  for  mem  adm  own  pla  a-m  a-o  sus  pen  t-e  t-f  t-o  t-p  t-s  wai  mfa

POST   /api/auth/register                     200  200  200  200  200  200  200  200  200  200  200  200  200  200  200  200  200  200  200
GET    /auth/verify-email                     200  200  200  200  200  200  200  200  200  200  200  200  200  200  200  200  200  200  200
POST   /api/auth/forgot-password              200  200  200  200  200  200  200  200  200  200  200  200  200  200  200  200  200  200  200
POST   /api/auth/reset-password               200  200  200  200  200  200  200  200  200  200  200  200  200  200  200  200  200  200  200
GET    /auth/reset-password                   200  200  200  200  200  200  200  200  200  200  200  200  200  200  200  200  200  200  200
POST   /auth/reset-password                   200  200  200  200  200  200  200  200  200  200  200  200  200  200  200  200  200  200  200
GET    /auth/undo                             200  200  200  200  200  200  200  200  200  200  200  200  200  200  200  200  200  200  200
POST   /auth/undo                             200  200  200  200  200  200  200  200  200  200  200  200  200  200  200  200  200  200  200
POST   /api/auth/resend-verification          200  200  200  200  200  200  200  200  200  200  200  200  200  200  200  200  200  200  200
POST   /auth/device/code                      200  200  200  200  200  200  200  200  200  200  403* 403* 200  200  200  200  403* 200  200
POST   /auth/token                            200  200  200  200  200  200  200  200  200  200  403* 403* 200  200  200  200  403* 200  200
POST   /auth/token#code                       200  200  200  200  200  200  200  200  200  200  403* 403* 200  200  200  200  403* 200  200
POST   /auth/token#external                   200  200  200  200  200  200  200  200  200  200  403* 403* 200  200  200  200  403* 200  200
POST   /auth/device/code#external             200  200  200  200  200  200  200  200  200  200  401  401  200  200  200  200  401  200  200
POST   /auth/revoke#external                  200  200  200  200  200  200  200  200  200  200  200  200  200  200  200  200  200  200  200
POST   /auth/par#external                     201  201  201  201  201  201  201  201  201  201  401  401  201  201  201  201  401  201  201
POST   /auth/register                         201  201  201  201  201  201  201  201  201  201  403* 403* 201  201  201  201  403* 201  201
GET    /auth/userinfo                         401  403  403  403  403  403  403  403  403  403  403  403  403  403  403  403  403  401  403
POST   /auth/userinfo                         401  403  403  403  403  403  403  403  403  403  403  403  403  403  403  403  403  401  403
POST   /auth/revoke                           200  200  200  200  200  200  200  200  200  200  200  200  200  200  200  200  200  200  200
POST   /auth/introspect                       200  200  200  200  200  200  200  200  200  200  200  200  200  200  200  200  200  200  200
POST   /auth/par                              201  201  201  201  201  201  201  201  201  201  403* 403* 201  201  201  201  403* 201  201
GET    /api/user                              401  200  200  200  200  200  200  200  200  200  200  200  200  200  200  200  200  401  200
PATCH  /api/user                              401  200  200  200  200  200  200  200  403  403  200  200  403  403  403  403  403  401  200
PUT    /api/user/picture                      401  200  200  200  200  200  200  200  403  403  200  200  403  403  403  403  403  401  200
DELETE /api/user/picture                      401  204  204  204  204  204  204  204  403  403  204  204  403  403  403  403  403  401  204
DELETE /api/user                              401  200  200  403  200  200  403  403  403  403  403  403  403  403  403  403  403  401  200
POST   /api/user/set-password                 401  200  200  200  200  200  200  200  403  403  200  200  403  403  403  403  403  401  200
DELETE /api/user/password                     401  204  204  204  204  204  204  204  403  403  204  204  403  403  403  403  403  401  204
POST   /api/user/change-password              401  200  200  200  200  200  200  200  403  403  200  200  403  403  403  403  403  401  200

POST   /api/auth/login                        200  200  200  200  200  200  200  200  200  200  200  200  200  200  200  200  200  200  200
POST   /api/auth/passkey/options              200  200  200  200  200  200  200  200  200  200  200  200  200  200  200  200  200  200  200
POST   /api/auth/passkey                      400  400  400  400  400  400  400  400  400  400  400  400  400  400  400  400  400  400  400
POST   /api/auth/email-sign-in                200  200  200  200  200  200  200  200  200  200  200  200  200  200  200  200  200  200  200
POST   /api/auth/email-sign-in/verify         200  200  200  200  200  200  200  200  200  200  200  200  200  200  200  200  200  200  200
GET    /auth/email-sign-in                    200  200  200  200  200  200  200  200  200  200  200  200  200  200  200  200  200  200  200
POST   /auth/email-sign-in                    303  303  303  303  303  303  303  303  303  303  303  303  303  303  303  303  303  303  303
POST   /api/auth/mfa/verify                   401  401  401  401  401  401  401  401  401  401  401  401  401  401  401  401  401  200  401
GET    /api/auth/reauthenticate               401  200  200  200  200  200  200  200  403  403  200  200  403  403  403  403  403  401  200
POST   /api/auth/reauthenticate               401  200  200  200  200  200  200  200  403  403  200  200  403  403  403  403  403  401  200
POST   /api/auth/reauthenticate/email         401  200  200  200  200  200  200  200  403  403  200  200  403  403  403  403  403  401  200
POST   {reauthentication-options}             401  200  200  200  200  200  200  200  403  403  200  200  403  403  403  403  403  401  200
POST   /api/auth/reauthenticate/<provider>    401  400  400  400  400  400  400  400  403  403  400  400  403  403  403  403  403  401  400
POST   /api/auth/refresh                      200  200  200  200  200  200  200  200  200  200  403* 403* 200  200  200  200  403* 200  200
POST   /api/auth/logout                       401  200  200  200  200  200  200  200  200  200  200  200  200  200  200  200  200  401  200
POST   /api/auth/lookup-email                 200  200  200  200  200  200  200  200  200  200  200  200  200  200  200  200  200  200  200

GET    /api/user/mfa/status                   401  200  200  200  200  200  200  200  200  200  200  200  200  200  200  200  200  401  200
POST   /api/user/mfa/setup                    401  200  200  200  200  200  200  200  403  403  200  200  403  403  403  403  403  401  400
POST   /api/user/mfa/verify                   401  200  200  200  200  200  200  200  403  403  200  200  403  403  403  403  403  401  400
DELETE /api/user/mfa                          401  200  200  200  200  200  200  200  403  403  200  200  403  403  403  403  403  401  200
POST   /api/user/mfa/backup-codes/regenerate  401  200  200  200  200  200  200  200  403  403  200  200  403  403  403  403  403  401  200

GET    /api/user/devices                      401  200  200  200  200  200  200  200  200  200  200  200  200  200  200  200  200  401  200
GET    /api/user/devices/<device_id>          401  200  200  200  200  200  200  200  200  200  200  200  200  200  200  200  200  401  200
PATCH  /api/user/devices/<device_id>          401  200  200  200  200  200  200  200  403  403  200  200  403  403  403  403  403  401  200
DELETE /api/user/devices/<device_id>          401  200  200  200  200  200  200  200  403  403  200  200  403  403  403  403  403  401  200
GET    /api/user/devices/<device_id>#other    401  403  403  403  403  403  403  403  403  403  403  403  403  403  403  403  403  401  403
PATCH  /api/user/devices/<device_id>#other    401  403  403  403  403  403  403  403  403  403  403  403  403  403  403  403  403  401  403
DELETE /api/user/devices/<device_id>#other    401  403  403  403  403  403  403  403  403  403  403  403  403  403  403  403  403  401  403
DELETE /api/user/devices/<device_id>#current  401  400  400  400  400  400  400  400  403  403  400  400  403  403  403  403  403  401  400

GET    /api/user/mfa/events                   401  200  200  200  200  200  200  200  200  200  200  200  403  403  403  403  403  401  200
GET    /api/user/privacy-log                  401  200  200  200  200  200  200  200  200  200  200  200  403  403  403  403  403  401  200
GET    /api/user/sign-ins                     401  200  200  200  200  200  200  200  200  200  200  200  403  403  403  403  403  401  200
GET    /api/user/applications                 401  200  200  200  200  200  200  200  200  200  200  200  403  403  403  403  403  401  200
GET    /api/user/attributes                   401  200  200  200  200  200  200  200  200  200  200  200  403  403  403  403  403  401  200
PATCH  /api/user/attributes                   401  404  404  404  200  200  200  200  403  403  200  200  403  403  403  403  403  401  200
GET    /api/user/consents                     401  200  200  200  200  200  200  200  200  200  200  200  403  403  403  403  403  401  200
DELETE /api/user/consents/<service_id>        401  204  204  204  204  204  204  204  403  403  204  204  403  403  403  403  403  401  204
POST   /api/user/passkeys/options             401  200  200  200  200  200  200  200  403  403  200  200  403  403  403  403  403  401  200
POST   /api/user/passkeys                     401  201  201  201  201  201  201  201  403  403  201  201  403  403  403  403  403  401  201
GET    /api/user/passkeys                     401  200  200  200  200  200  200  200  200  200  200  200  403  403  403  403  403  401  200
PATCH  /api/user/passkeys/<passkey_id>        401  200  200  200  200  200  200  200  403  403  200  200  403  403  403  403  403  401  200
PUT    /api/user/passkeys/second-factor       401  200  200  200  200  200  200  200  403  403  200  200  403  403  403  403  403  401  200
DELETE /api/user/passkeys/<passkey_id>        401  204  204  204  204  204  204  204  403  403  204  204  403  403  403  403  403  401  204
PATCH  /api/user/passkeys/<passkey_id>#other  401  404  404  404  404  404  404  404  403  403  404  404  403  403  403  403  403  401  404
DELETE /api/user/passkeys/<passkey_id>#other  401  404  404  404  404  404  404  404  403  403  404  404  403  403  403  403  403  401  404
POST   /api/user/passkeys/wait                401  201  201  201  201  201  201  201  403  403  201  201  403  403  403  403  403  401  400
DELETE /api/user/passkeys/wait                401  404  404  404  404  404  404  404  403  403  404  404  403  403  403  403  403  401  404
DELETE /api/user/passkeys                     401  204  204  204  204  204  204  204  403  403  204  204  403  403  403  403  403  401  400
POST   /api/user/personal-tokens              401  200  200  200  200  200  200  200  403  403  200  200  403  403  403  403  403  401  200
GET    /api/user/personal-tokens              401  200  200  200  200  200  200  200  200  200  200  200  403  403  403  403  403  401  200
DELETE {own-token}                            401  204  204  204  204  204  204  204  403  403  204  204  403  403  403  403  403  401  204
GET    /api/user/connections                  401  200  200  200  200  200  200  200  200  200  200  200  403  403  403  403  403  401  200
DELETE /api/user/connections/<connection_id>  401  204  204  204  204  204  204  204  403  403  204  204  403  403  403  403  403  401  204
GET    /api/user/identities                   401  200  200  200  200  200  200  200  200  200  200  200  200  200  200  200  200  401  200
GET    /auth/<provider:provider>              302  302  302  302  302  302  302  302  302  302  302  302  302  302  302  302  302  302  302
GET    /auth/<provider:provider>/callback     400  400  400  400  400  400  400  400  400  400  400  400  400  400  400  400  400  400  400
GET    {at_connection}/callback               400  400  400  400  400  400  400  400  400  400  400  400  400  400  400  400  400  400  400
POST   {at_connection}/acs                    400  400  400  400  400  400  400  400  400  400  400  400  400  400  400  400  400  400  400
GET    {at_connection}/initiate               400  400  400  400  400  400  400  400  400  400  404  404  400  400  400  400  404  400  400
POST   {at_connection}/initiate               303  303  303  303  303  303  303  303  303  303  303  303  303  303  303  303  303  303  303
GET    {at_connection}/metadata               200  200  200  200  200  200  200  200  200  200  404  404  200  200  200  200  404  200  200
GET    {at_connection}/start                  400  400  400  400  400  400  400  400  400  400  404  404  400  400  400  400  404  400  400
POST   {at_connection}/backchannel-logout     400  400  400  400  400  400  400  400  400  400  404  404  400  400  400  400  404  400  400
GET    {at_connection}/sign-out               303  303  303  303  303  303  303  303  303  303  303  303  303  303  303  303  303  303  303
GET    {at_connection}/signed-out             303  303  303  303  303  303  303  303  303  303  303  303  303  303  303  303  303  303  303
GET    {at_connection}/slo                    400  400  400  400  400  400  400  400  400  400  400  400  400  400  400  400  400  400  400
POST   {at_connection}/slo                    400  400  400  400  400  400  400  400  400  400  404  404  400  400  400  400  404  400  400
GET    {at_connection}/jwks.json              200  200  200  200  200  200  200  200  200  200  404  404  200  200  200  200  404  200  200
POST   /api/user/identities/<provider>/link   401  200  200  200  200  200  200  200  403  403  200  200  403  403  403  403  403  401  200
DELETE /api/user/identities/<provider>        401  200  200  200  200  200  200  200  403  403  200  200  200  200  200  200  200  401  200
GET    /api/provider-token/<provider>         401  200  200  200  200  200  200  200  403  403  200  200  200  200  200  200  200  401  200
GET    /api/subscription                      401  400  400  400  400  400  400  400  400  400  400  400  200  200  404  404  200  401  400

GET    /api/privacy/export/<user_id>          401  403  403  403  403  403  200  200  403  403  200  200  403  403  403  403  403  401  403
GET    /api/privacy/export/<user_id>#own      401  200  200  200  200  200  200  200  403  403  200  200  200  200  200  200  200  401  200
DELETE /api/privacy/forget/<user_id>          401  403  403  403  403  403  200  200  403  403  200  200  403  403  403  403  403  401  403
DELETE /api/privacy/forget/<user_id>#own      401  403  403  200  403  403  200  403  403  403  200  200  403  403  403  403  403  401  403

POST   /api/organizations                     401  200  200  200  200  200  200  200  403  403  200  200  403  403  403  403  403  401  200
GET    /api/organizations                     401  200  200  200  200  200  200  200  200  200  200  200  403  403  403  403  403  401  200
GET    {org}                                  401  403  403  403  200  200  200  403  200  200  200  200  403  403  403  403  403  401  200
PATCH  {org}                                  401  403  403  403  403  200  200  403  403  403  403* 403* 403  403  403  403  403  401  403
DELETE {org}                                  401  403  403  403  403  403  204  403  403  403  403* 403* 403  403  403  403  403  401  403
POST   {org}/select                           401  403  403  403  200  200  200  403  200  200  403* 403* 403  403  403  403  403  401  200

GET    /api/capabilities                      200  200  200  200  200  200  200  200  200  200  200  200  200  200  200  200  200  200  200
GET    {org}/roles                            401  403  403  403  200  200  200  403  200  200  403* 403* 403  403  403  403  403  401  200
POST   {org}/roles                            401  403  403  403  403  403  201  403  403  403  403* 403* 403  403  403  403  403  401  403
GET    {org}/roles/<role_name>                401  403  403  403  200  200  200  403  200  200  403* 403* 403  403  403  403  403  401  200
PATCH  {org}/roles/<role_name>                401  403  403  403  403  403  200  403  403  403  403* 403* 403  403  403  403  403  401  403
DELETE {org}/roles/<role_name>                401  403  403  403  403  403  204  403  403  403  403* 403* 403  403  403  403  403  401  403

GET    {org}/members                          401  403  403  403  200  200  200  403  200  200  403* 403* 403  403  403  403  403  401  200
GET    {org}/members/export                   401  403  403  403  403  200  200  403  403  200  403* 403* 403  403  403  403  403  401  403
GET    {org}/members/<user_id>                401  403  403  403  403  200  200  403  403  200  403* 403* 403  403  403  403  403  401  403
DELETE {org}/members/<user_id>/sessions       401  403  403  403  403  200  200  403  403  200  403* 403* 403  403  403  403  403  401  403
PATCH  {org}/members/<user_id>                401  403  403  403  403  403  200  403  403  403  403* 403* 403  403  403  403  403  401  403
PATCH  {org}/members/<user_id>#of-admin       401  403  403  403  403  403  200  403  403  403  403* 403* 403  403  403  403  403  401  403
POST   {org}/members/<user_id>                401  403  403  403  403  200  200  403  403  403  403* 403* 403  403  403  403  403  401  403
POST   {org}/members/<user_id>/password-reset 401  403  403  403  403  200  200  403  403  403  403* 403* 403  403  403  403  403  401  403
POST   {org}/members/<user_id>/recovery       401  403  403  403  403  201  201  403  403  403  403* 403* 403  403  403  403  403  401  403
DELETE {org}/members/<user_id>/recovery       401  403  403  403  403  204  204  403  403  403  403* 403* 403  403  403  403  403  401  403
GET    {org}/members/<user_id>/attributes     401  403  403  403  403  200  200  403  403  200  403* 403* 403  403  403  403  403  401  403
PATCH  {org}/members/<user_id>/attributes     401  403  403  403  403  200  200  403  403  403  403* 403* 403  403  403  403  403  401  403
GET    {org}/attributes                       401  403  403  403  200  200  200  403  200  200  403* 403* 403  403  403  403  403  401  200
POST   {org}/attributes                       401  403  403  403  403  201  201  403  403  403  403* 403* 403  403  403  403  403  401  403
PATCH  {org}/attributes/<attribute_name>      401  403  403  403  403  200  200  403  403  403  403* 403* 403  403  403  403  403  401  403
DELETE {org}/attributes/<attribute_name>      401  403  403  403  403  204  204  403  403  403  403* 403* 403  403  403  403  403  401  403
POST   {org}/leave                            401  403  403  403  204  204  400  403  403  403  400  400  403  403  403  403  403  401  204
POST   {org}/transfer-ownership               401  403  403  403  403  403  200  403  403  403  403* 403* 403  403  403  403  403  401  403

GET    {org}/groups                           401  403  403  403  200  200  200  403  200  200  403* 403* 403  403  403  403  403  401  200
POST   {org}/groups                           401  403  403  403  403  201  201  403  403  403  403* 403* 403  403  403  403  403  401  403
GET    {group}                                401  403  403  403  200  200  200  403  200  200  403* 403* 403  403  403  403  403  401  200
PATCH  {group}                                401  403  403  403  403  200  200  403  403  403  403* 403* 403  403  403  403  403  401  403
DELETE {group}                                401  403  403  403  403  204  204  403  403  403  403* 403* 403  403  403  403  403  401  403
GET    {group}/members                        401  403  403  403  200  200  200  403  200  200  403* 403* 403  403  403  403  403  401  200
POST   {group}/members                        401  403  403  403  403  200  200  403  403  403  403* 403* 403  403  403  403  403  401  403
PUT    {group}/members/<user_id>              401  403  403  403  403  204  204  403  403  403  403* 403* 403  403  403  403  403  401  403
DELETE {group}/members/<user_id>              401  403  403  403  403  204  204  403  403  403  403* 403* 403  403  403  403  403  401  403
GET    {group}/attributes                     401  403  403  403  403  200  200  403  403  200  403* 403* 403  403  403  403  403  401  403
PATCH  {group}/attributes                     401  403  403  403  403  200  200  403  403  403  403* 403* 403  403  403  403  403  401  403
PUT    {group}/role                           401  403  403  403  403  403  200  403  403  403  403* 403* 403  403  403  403  403  401  403
DELETE {group}/role                           401  403  403  403  403  403  204  403  403  403  403* 403* 403  403  403  403  403  401  403
GET    {group}/services                       401  403  403  403  200  200  200  403  200  200  403* 403* 403  403  403  403  403  401  200
GET    {group}/service-roles                  401  403  403  403  200  200  200  403  200  200  403* 403* 403  403  403  403  403  401  200

POST   {org}/invitations                      401  403  403  403  403  200  200  403  403  403  403* 403* 403  403  403  403  403  401  403
POST   {org}/invitations#admin                401  403  403  403  403  403  200  403  403  403  403* 403* 403  403  403  403  403  401  403
POST   {org}/invitations#owner                401  403  403  403  403  400  400  403  403  403  403* 403* 403  403  403  403  403  401  403
POST   {org}/invitations/bulk                 401  403  403  403  403  200  200  403  403  403  403* 403* 403  403  403  403  403  401  403
POST   {org}/invitations/bulk#admin           401  403  403  403  403  403  200  403  403  403  403* 403* 403  403  403  403  403  401  403
GET    {org}/invitations                      401  403  403  403  403  200  200  403  403  200  403* 403* 403  403  403  403  403  401  403
POST   {invitation}                           401  403  403  403  403  200  200  403  403  403  403* 403* 403  403  403  403  403  401  403
POST   {invitation}/resend                    401  403  403  403  403  200  200  403  403  403  403* 403* 403  403  403  403  403  401  403
POST   {invitation}/resend#admin              401  403  403  403  403  403  200  403  403  403  403* 403* 403  403  403  403  403  401  403
POST   {invitation}/accept                    401  403  403  403  403  200  200  403  403  403  403* 403* 403  403  403  403  403  401  403
POST   {invitation}/accept#admin              401  403  403  403  403  403  200  403  403  403  403* 403* 403  403  403  403  403  401  403
GET    /api/invitations                       401  200  200  200  200  200  200  200  200  200  200  200  403  403  403  403  403  401  200
POST   /api/invitations/accept                200  400  200  400  400  400  400  400  403  403  403* 403* 403  403  403  403  403  401  400
POST   /api/invitations/decline               200  200  200  200  200  200  200  200  403  403  200  200  403  403  403  403  403  401  200
GET    /invitations/accept                    301  301  301  301  301  301  301  301  301  301  301  301  301  301  301  301  301  301  301
GET    /app/invitations/accept                200  200  200  200  200  200  200  200  200  200  403* 403* 200  200  200  200  403* 200  200
POST   /app/invitations/accept                200  200  200  200  200  200  200  200  200  200  403* 403* 200  200  200  200  403* 200  200
POST   /app/invitations/decline               200  200  200  200  200  200  200  200  200  200  200  200  200  200  200  200  200  200  200

GET    {org}/sign-ins                         401  403  403  403  403  200  200  403  403  200  403* 403* 403  403  403  403  403  401  403
GET    {org}/sign-ins/export                  401  403  403  403  403  200  200  403  403  200  403* 403* 403  403  403  403  403  401  403
GET    {org}/audit-log                        401  403  403  403  403  200  200  403  403  200  403* 403* 403  403  403  403  403  401  403
GET    {org}/audit-log/export                 401  403  403  403  403  200  200  403  403  200  403* 403* 403  403  403  403  403  401  403
GET    {org}/audit-log/<entry_id>             401  403  403  403  403  200  200  403  403  200  403* 403* 403  403  403  403  403  401  403
GET    {org}/audit-log/event-types            401  403  403  403  403  200  200  403  403  200  403* 403* 403  403  403  403  403  401  403

POST   {org}/services                         401  403  403  403  403  200  200  403  403  403  403* 403* 403  403  403  403  403  401  403
POST   {org}/registration-tokens              401  403  403  403  403  201  201  403  403  403  403* 403* 403  403  403  403  403  401  403
GET    {org}/registration-tokens              401  403  403  403  403  200  200  403  403  200  403* 403* 403  403  403  403  403  401  403
DELETE {registration-token}                   401  403  403  403  403  204  204  403  403  403  403* 403* 403  403  403  403  403  401  403
GET    {org}/services                         401  403  403  403  200  200  200  403  200  200  403* 403* 403  403  403  403  403  401  200
GET    {service}                              401  403  403  403  200  200  200  403  200  200  403* 403* 403  403  403  403  403  401  200
PATCH  {service}                              401  403  403  403  403  200  200  403  403  403  403* 403* 403  403  403  403  403  401  403
PUT    {service}/logo                         401  403  403  403  403  200  200  403  403  403  403* 403* 403  403  403  403  403  401  403
DELETE {service}/logo                         401  403  403  403  403  204  204  403  403  403  403* 403* 403  403  403  403  403  401  403
POST   {service}/rotate-secret                401  403  403  403  403  200  200  403  403  403  403* 403* 403  403  403  403  403  401  403
GET    {service}/access                       401  403  403  403  200  200  200  403  200  200  403* 403* 403  403  403  403  403  401  200
GET    {service}/sign-in-preview              401  403  403  403  403  200  200  403  403  200  403* 403* 403  403  403  403  403  401  403
PUT    {service}/access                       401  403  403  403  403  200  200  403  403  403  403* 403* 403  403  403  403  403  401  403
GET    {service}/claims                       401  403  403  403  200  200  200  403  200  200  403* 403* 403  403  403  403  403  401  200
PUT    {service}/claims                       401  403  403  403  403  200  200  403  403  403  403* 403* 403  403  403  403  403  401  403
DELETE {service}/claims                       401  403  403  403  403  204  204  403  403  403  403* 403* 403  403  403  403  403  401  403
POST   {service}/claims/preview               401  403  403  403  403  200  200  403  403  200  403* 403* 403  403  403  403  403  401  403
GET    {service}/assignments                  401  403  403  403  200  200  200  403  200  200  403* 403* 403  403  403  403  403  401  200
POST   {service}/assignments                  401  403  403  403  403  200  200  403  403  403  403* 403* 403  403  403  403  403  401  403
PUT    {service}/assignments/<user_id>        401  403  403  403  403  204  204  403  403  403  403* 403* 403  403  403  403  403  401  403
DELETE {service}/assignments/<user_id>        401  403  403  403  403  204  204  403  403  403  403* 403* 403  403  403  403  403  401  403
GET    {service}/authorization                401  403  403  403  200  200  200  403  200  200  403* 403* 403  403  403  403  403  401  200
PUT    {service}/authorization                401  403  403  403  403  200  200  403  403  403  403* 403* 403  403  403  403  403  401  403
POST   {service}/permissions                  401  403  403  403  403  201  201  403  403  403  403* 403* 403  403  403  403  403  401  403
PATCH  {permission}                           401  403  403  403  403  200  200  403  403  403  403* 403* 403  403  403  403  403  401  403
DELETE {permission}                           401  403  403  403  403  204  204  403  403  403  403* 403* 403  403  403  403  403  401  403
GET    {service}/roles                        401  403  403  403  200  200  200  403  200  200  403* 403* 403  403  403  403  403  401  200
POST   {service}/roles                        401  403  403  403  403  201  201  403  403  403  403* 403* 403  403  403  403  403  401  403
GET    {role}                                 401  403  403  403  200  200  200  403  200  200  403* 403* 403  403  403  403  403  401  200
PATCH  {role}                                 401  403  403  403  403  200  200  403  403  403  403* 403* 403  403  403  403  403  401  403
DELETE {role}                                 401  403  403  403  403  204  204  403  403  403  403* 403* 403  403  403  403  403  401  403
GET    {role}/users                           401  403  403  403  200  200  200  403  200  200  403* 403* 403  403  403  403  403  401  200
POST   {role}/users                           401  403  403  403  403  200  200  403  403  403  403* 403* 403  403  403  403  403  401  403
GET    {role}/users/<user_id>                 401  403  403  403  200  200  200  403  200  200  403* 403* 403  403  403  403  403  401  200
PUT    {role}/users/<user_id>                 401  403  403  403  403  204  204  403  403  403  403* 403* 403  403  403  403  403  401  403
DELETE {role}/users/<user_id>                 401  403  403  403  403  204  204  403  403  403  403* 403* 403  403  403  403  403  401  403
GET    {role}/groups                          401  403  403  403  200  200  200  403  200  200  403* 403* 403  403  403  403  403  401  200
PUT    {role}/groups/<group_id>               401  403  403  403  403  204  204  403  403  403  403* 403* 403  403  403  403  403  401  403
DELETE {role}/groups/<group_id>               401  403  403  403  403  204  204  403  403  403  403* 403* 403  403  403  403  403  401  403
GET    {service}/groups                       401  403  403  403  200  200  200  403  200  200  403* 403* 403  403  403  403  403  401  200
PUT    {service}/groups/<group_id>            401  403  403  403  403  204  204  403  403  403  403* 403* 403  403  403  403  403  401  403
DELETE {service}/groups/<group_id>            401  403  403  403  403  204  204  403  403  403  403* 403* 403  403  403  403  403  401  403
DELETE {service}                              401  403  403  403  403  403  204  403  403  403  403* 403* 403  403  403  403  403  401  403

GET    {org}/api-resources                    401  403  403  403  200  200  200  403  200  200  403* 403* 403  403  403  403  403  401  200
POST   {org}/api-resources                    401  403  403  403  403  201  201  403  403  403  403* 403* 403  403  403  403  403  401  403
GET    {resource}                             401  403  403  403  200  200  200  403  200  200  403* 403* 403  403  403  403  403  401  200
PATCH  {resource}                             401  403  403  403  403  200  200  403  403  403  403* 403* 403  403  403  403  403  401  403
GET    {resource}/access                      401  403  403  403  200  200  200  403  200  200  403* 403* 403  403  403  403  403  401  200
PUT    {resource}/access                      401  403  403  403  403  200  200  403  403  403  403* 403* 403  403  403  403  403  401  403
GET    {resource}/external-clients            401  403  403  403  200  200  200  403  200  200  403* 403* 403  403  403  403  403  401  200
PUT    {resource}/external-clients            401  403  403  403  403  200  200  403  403  403  403* 403* 403  403  403  403  403  401  403
GET    {grants}                               401  403  403  403  200  200  200  403  200  200  403* 403* 403  403  403  403  403  401  200
DELETE {grants}/<user_id>/<client_id>         401  403  403  403  403  204  204  403  403  403  403* 403* 403  403  403  403  403  401  403
GET    {resource}/assignments                 401  403  403  403  200  200  200  403  200  200  403* 403* 403  403  403  403  403  401  200
POST   {resource}/assignments                 401  403  403  403  403  200  200  403  403  403  403* 403* 403  403  403  403  403  401  403
PUT    {resource}/assignments/<user_id>       401  403  403  403  403  204  204  403  403  403  403* 403* 403  403  403  403  403  401  403
DELETE {resource}/assignments/<user_id>       401  403  403  403  403  204  204  403  403  403  403* 403* 403  403  403  403  403  401  403
GET    {resource}/groups                      401  403  403  403  200  200  200  403  200  200  403* 403* 403  403  403  403  403  401  200
PUT    {resource}/groups/<group_id>           401  403  403  403  403  204  204  403  403  403  403* 403* 403  403  403  403  403  401  403
DELETE {resource}/groups/<group_id>           401  403  403  403  403  204  204  403  403  403  403* 403* 403  403  403  403  403  401  403
GET    {resource}/clients                     401  403  403  403  200  200  200  403  200  200  403* 403* 403  403  403  403  403  401  200
PUT    {resource}/clients/<client_id>         401  403  403  403  403  200  200  403  403  403  403* 403* 403  403  403  403  403  401  403
DELETE {resource}/clients/<client_id>         401  403  403  403  403  204  204  403  403  403  403* 403* 403  403  403  403  403  401  403
GET    {resource}/credentials                 401  403  403  403  200  200  200  403  200  200  403* 403* 403  403  403  403  403  401  200
POST   {resource}/credentials                 401  403  403  403  403  201  201  403  403  403  403* 403* 403  403  403  403  403  401  403
DELETE {resource}/credentials/<credential_id> 401  403  403  403  403  204  204  403  403  403  403* 403* 403  403  403  403  403  401  403
DELETE {resource}                             401  403  403  403  403  204  204  403  403  403  403* 403* 403  403  403  403  403  401  403

GET    {org}/service-accounts                 401  403  403  403  403  200  200  403  403  200  403* 403* 403  403  403  403  403  401  403
POST   {org}/service-accounts                 401  403  403  403  403  201  201  403  403  403  403* 403* 403  403  403  403  403  401  403
POST   {org}/service-accounts#admin           401  403  403  403  403  201  201  403  403  403  403* 403* 403  403  403  403  403  401  403
POST   {org}/service-accounts#owner           401  403  403  403  403  403  201  403  403  403  403* 403* 403  403  403  403  403  401  403
POST   {org}/service-accounts#granted         401  403  403  403  403  403  201  403  403  403  403* 403* 403  403  403  403  403  401  403
GET    {account}                              401  403  403  403  403  200  200  403  403  200  403* 403* 403  403  403  403  403  401  403
PATCH  {account}                              401  403  403  403  403  200  200  403  403  403  403* 403* 403  403  403  403  403  401  403
GET    {account}/api-resources                401  403  403  403  403  200  200  403  403  200  403* 403* 403  403  403  403  403  401  403
PUT    {account}/api-resources/<resource_id>  401  403  403  403  403  200  200  403  403  403  403* 403* 403  403  403  403  403  401  403
DELETE {account}/api-resources/<resource_id>  401  403  403  403  403  204  204  403  403  403  403* 403* 403  403  403  403  403  401  403
GET    {account}/credentials                  401  403  403  403  403  200  200  403  403  200  403* 403* 403  403  403  403  403  401  403
POST   {account}/credentials                  401  403  403  403  403  201  201  403  403  403  403* 403* 403  403  403  403  403  401  403
DELETE {account}/credentials/<credential_id>  401  403  403  403  403  204  204  403  403  403  403* 403* 403  403  403  403  403  401  403
GET    {account}/created-secrets              401  403  403  403  403  403  200  403  403  200  403* 403* 403  403  403  403  403  401  403
DELETE {account}/created-secrets              401  403  403  403  403  403  200  403  403  403  403* 403* 403  403  403  403  403  401  403
POST   {account}/end                          401  403  403  403  403  204  204  403  403  403  403* 403* 403  403  403  403  403  401  403
DELETE {account}                              401  403  403  403  403  204  204  403  403  403  403* 403* 403  403  403  403  403  401  403

POST   {service}/plans                        401  403  403  403  403  200  200  403  403  403  403* 403* 403  403  403  403  403  401  403
GET    {service}/plans                        401  403  403  403  200  200  200  403  200  200  403* 403* 403  403  403  403  403  401  200
PATCH  {service}/plans/<plan_id>              401  403  403  403  403  200  200  403  403  403  403* 403* 403  403  403  403  403  401  403
DELETE {service}/plans/<plan_id>              401  403  403  403  403  204  204  403  403  403  403* 403* 403  403  403  403  403  401  403
GET    {service}/subscriptions                401  403  403  403  200  200  200  403  200  200  403* 403* 403  403  403  403  403  401  200

POST   {service}/checkout                     401  403  403  403  200  200  200  403  200  200  403* 403* 403  403  403  403  403  401  200
POST   /webhooks/billing                      400  400  400  400  400  400  400  400  400  400  400  400  400  400  400  400  400  400  400

POST   {service}/api-keys                     401  403  403  403  403  201  201  403  403  403  403* 403* 403  403  403  403  403  401  403
GET    {service}/api-keys                     401  403  403  403  200  200  200  403  200  200  403* 403* 403  403  403  403  403  401  200
GET    {service}/api-keys/<api_key_id>        401  403  403  403  200  200  200  403  200  200  403* 403* 403  403  403  403  403  401  200
DELETE {service}/api-keys/<api_key_id>        401  403  403  403  403  204  204  403  403  403  403* 403* 403  403  403  403  403  401  403

PUT    {service}/oauth-credentials/<provider> 401  403  403  403  403  200  200  403  403  403  403* 403* 403  403  403  403  403  401  403
GET    {service}/oauth-credentials/<provider> 401  403  403  403  403  200  200  403  403  200  403* 403* 403  403  403  403  403  401  403
DELETE {service}/oauth-credentials/<provider> 401  403  403  403  403  204  204  403  403  403  403* 403* 403  403  403  403  403  401  403

POST   {service}/saml                         401  403  403  403  403  200  200  403  403  403  403* 403* 403  403  403  403  403  401  403
GET    {service}/saml                         401  403  403  403  200  200  200  403  200  200  403* 403* 403  403  403  403  403  401  200
DELETE {service}/saml                         401  403  403  403  403  200  200  403  403  403  403* 403* 403  403  403  403  403  401  403
POST   {service}/saml/certificate             401  403  403  403  403  200  200  403  403  403  403* 403* 403  403  403  403  403  401  403
GET    {service}/saml/certificate             401  403  403  403  200  200  200  403  200  200  403* 403* 403  403  403  403  403  401  200
POST   {service}/saml/certificate/next        401  403  403  403  403  200  200  403  403  403  403* 403* 403  403  403  403  403  401  403
GET    {service}/saml/certificate/next        401  403  403  403  200  200  200  403  200  200  403* 403* 403  403  403  403  403  401  200
DELETE {service}/saml/certificate/next        401  403  403  403  403  204  204  403  403  403  403* 403* 403  403  403  403  403  401  403
POST   {service}/saml/certificate/activate    401  403  403  403  403  200  200  403  403  403  403* 403* 403  403  403  403  403  401  403
POST   {service}/saml/certificate/undo        401  403  403  403  403  200  200  403  403  403  403* 403* 403  403  403  403  403  401  403
POST   {service}/saml/metadata                401  403  403  403  403  200  200  403  403  200  403* 403* 403  403  403  403  403  401  403
GET    {service}/saml/check                   401  403  403  403  200  200  200  403  200  200  403* 403* 403  403  403  403  403  401  200
GET    {saml}/metadata                        200  200  200  200  200  200  200  200  200  200  403* 403* 200  200  200  200  403* 200  200
GET    {saml}/sso                             400  400  400  400  400  400  400  400  400  400  403* 403* 400  400  400  400  403* 400  400
POST   {saml}/sso                             400  400  400  400  400  400  400  400  400  400  403* 403* 400  400  400  400  403* 400  400
GET    {saml}/authenticate                    400  400  400  400  400  400  400  400  400  400  403* 403* 400  400  400  400  403* 400  400
GET    {saml}/slo                             400  400  400  400  400  400  400  400  400  400  403* 403* 400  400  400  400  403* 400  400
POST   {saml}/slo                             400  400  400  400  400  400  400  400  400  400  403* 403* 400  400  400  400  403* 400  400

GET    {org}/users                            401  403  403  403  200  200  200  403  200  200  403* 403* 403  403  403  403  403  401  200
GET    {org}/users/<user_id>                  401  403  403  403  200  200  200  403  200  200  403* 403* 403  403  403  403  403  401  200
GET    {org}/users/<user_id>/roles            401  403  403  403  200  200  200  403  200  200  403* 403* 403  403  403  403  403  401  200
GET    {org}/users/<user_id>/access           401  403  403  403  200  200  200  403  200  200  403* 403* 403  403  403  403  403  401  200
DELETE {org}/users/<user_id>/sessions         401  403  403  403  403  200  200  403  403  200  403* 403* 403  403  403  403  403  401  403
POST   {org}/users/<user_id>/password-reset   401  403  403  403  403  200  200  403  403  403  403* 403* 403  403  403  403  403  401  403
PUT    {org}/users/<user_id>/block            401  403  403  403  403  204  204  403  403  403  403* 403* 403  403  403  403  403  401  403
DELETE {org}/users/<user_id>/block            401  403  403  403  403  204  204  403  403  403  403* 403* 403  403  403  403  403  401  403
DELETE {org}/users/<user_id>/mfa              401  403  403  403  403  204  204  403  403  403  403* 403* 403  403  403  403  403  401  403
POST   {org}/users/<user_id>/recovery         401  403  403  403  403  201  201  403  403  403  403* 403* 403  403  403  403  403  401  403
DELETE {org}/users/<user_id>/recovery         401  403  403  403  403  204  204  403  403  403  403* 403* 403  403  403  403  403  401  403
GET    {org}/users/<user_id>/attributes       401  403  403  403  200  200  200  403  200  200  403* 403* 403  403  403  403  403  401  200
PATCH  {org}/users/<user_id>/attributes       401  403  403  403  403  200  200  403  403  403  403* 403* 403  403  403  403  403  401  403

GET    {org}/overview                         401  403  403  403  200  200  200  403  200  200  403* 403* 403  403  403  403  403  401  200
GET    {org}/analytics/login-trends           401  403  403  403  200  200  200  403  200  200  403* 403* 403  403  403  403  403  401  200
GET    {org}/analytics/logins-by-service      401  403  403  403  200  200  200  403  200  200  403* 403* 403  403  403  403  403  401  200
GET    {org}/analytics/logins-by-provider     401  403  403  403  200  200  200  403  200  200  403* 403* 403  403  403  403  403  401  200
GET    {org}/analytics/recent-logins          401  403  403  403  200  200  200  403  200  200  403* 403* 403  403  403  403  403  401  200
GET    {org}/analytics/sign-ins               401  403  403  403  200  200  200  403  200  200  403* 403* 403  403  403  403  403  401  200
GET    {org}/analytics/users                  401  403  403  403  200  200  200  403  200  200  403* 403* 403  403  403  403  403  401  200
GET    {org}/analytics/webhook-attempts       401  403  403  403  403  200  200  403  403  200  403* 403* 403  403  403  403  403  401  403
GET    {org}/analytics/scim-requests          401  403  403  403  403  200  200  403  403  200  403* 403* 403  403  403  403  403  401  403

POST   {org}/webhooks                         401  403  403  403  403  200  200  403  403  403  403* 403* 403  403  403  403  403  401  403
GET    {org}/webhooks                         401  403  403  403  403  200  200  403  403  200  403* 403* 403  403  403  403  403  401  403
GET    {org}/webhooks/event-types             401  403  403  403  403  200  200  403  403  200  403* 403* 403  403  403  403  403  401  403
GET    {webhook}                              401  403  403  403  403  200  200  403  403  200  403* 403* 403  403  403  403  403  401  403
PATCH  {webhook}                              401  403  403  403  403  200  200  403  403  403  403* 403* 403  403  403  403  403  401  403
DELETE {webhook}                              401  403  403  403  403  200  200  403  403  403  403* 403* 403  403  403  403  403  401  403
POST   {webhook}/rotate-secret                401  403  403  403  403  200  200  403  403  403  403* 403* 403  403  403  403  403  401  403
POST   {webhook}/test                         401  403  403  403  403  200  200  403  403  200  403* 403* 403  403  403  403  403  401  403
GET    {webhook}/deliveries                   401  403  403  403  403  200  200  403  403  200  403* 403* 403  403  403  403  403  401  403
GET    {webhook}/deliveries/<delivery_id>     401  403  403  403  403  200  200  403  403  200  403* 403* 403  403  403  403  403  401  403
POST   {webhook}/deliveries/<delivery_id>/replay 401 403 403 403 403  200  200  403  403  200  403* 403* 403  403  403  403  403  401  403
POST   {webhook}/deliveries/resend-failed 401 403 403 403 403  200  200  403  403  200  403* 403* 403  403  403  403  403  401  403

GET    {org}/directory-blocks                 401  403  403  403  403  200  200  403  403  200  403* 403* 403  403  403  403  403  401  403
DELETE {org}/directory-blocks/<user_id>       401  403  403  403  403  204  204  403  403  403  403* 403* 403  403  403  403  403  401  403

GET    {org}/personal-tokens                  401  403  403  403  403  200  200  403  403  200  403* 403* 403  403  403  403  403  401  403
DELETE {member-token}                         401  403  403  403  403  204  204  403  403  403  403* 403* 403  403  403  403  403  401  403

POST   {org}/scim-tokens                      401  403  403  403  403  200  200  403  403  403  403* 403* 403  403  403  403  403  401  403
GET    {org}/scim-tokens                      401  403  403  403  403  200  200  403  403  200  403* 403* 403  403  403  403  403  401  403
PATCH  {org}/scim-tokens/<token_id>           401  403  403  403  403  200  200  403  403  403  403* 403* 403  403  403  403  403  401  403
DELETE {org}/scim-tokens/<token_id>           401  403  403  403  403  204  204  403  403  403  403* 403* 403  403  403  403  403  401  403
GET    {org}/scim-requests                    401  403  403  403  403  200  200  403  403  200  403* 403* 403  403  403  403  403  401  403

POST   {org}/smtp                             401  403  403  403  403  200  200  403  403  403  403* 403* 403  403  403  403  403  401  403
GET    {org}/smtp                             401  403  403  403  403  200  200  403  403  200  403* 403* 403  403  403  403  403  401  403
DELETE {org}/smtp                             401  403  403  403  403  204  204  403  403  403  403* 403* 403  403  403  403  403  401  403
POST   {org}/smtp/test                        401  403  403  403  403  200  200  403  403  200  403* 403* 403  403  403  403  403  401  403

GET    {org}/sign-in-policy                   401  403  403  403  403  200  200  403  403  200  403* 403* 403  403  403  403  403  401  403
PUT    {org}/sign-in-policy                   401  403  403  403  403  200  200  403  403  403  403* 403* 403  403  403  403  403  401  403
POST   {org}/sign-in-policy/preview           401  403  403  403  403  200  200  403  403  403  403* 403* 403  403  403  403  403  401  403
GET    {org}/sign-in-policy/break-glass       401  403  403  403  403  200  200  403  403  200  403* 403* 403  403  403  403  403  401  403
PUT    {org}/sign-in-policy/break-glass       401  403  403  403  403  200  200  403  403  403  403* 403* 403  403  403  403  403  401  403
GET    {org}/sign-in-policy/imposed-rules     401  403  403  403  403  403  200  403  403  200  403* 403* 403  403  403  403  403  401  403
DELETE {org}/sign-in-policy/imposed-rules     401  403  403  403  403  403  204  403  403  403  403* 403* 403  403  403  403  403  401  403
GET    {service}/sign-in-policy               401  403  403  403  403  200  200  403  403  200  403* 403* 403  403  403  403  403  401  403
PUT    {service}/sign-in-policy               401  403  403  403  403  200  200  403  403  403  403* 403* 403  403  403  403  403  401  403
DELETE {service}/sign-in-policy               401  403  403  403  403  204  204  403  403  403  403* 403* 403  403  403  403  403  401  403
POST   {service}/sign-in-policy/preview       401  403  403  403  403  200  200  403  403  403  403* 403* 403  403  403  403  403  401  403

POST   {org}/siem                             401  403  403  403  403  200  200  403  403  403  403* 403* 403  403  403  403  403  401  403
GET    {org}/siem                             401  403  403  403  403  200  200  403  403  200  403* 403* 403  403  403  403  403  401  403
DELETE {org}/siem                             401  403  403  403  403  204  204  403  403  403  403* 403* 403  403  403  403  403  401  403
POST   {org}/siem/test                        401  403  403  403  403  200  200  403  403  200  403* 403* 403  403  403  403  403  401  403

GET    {org}/branding                         401  403  403  403  200  200  200  403  200  200  403* 403* 403  403  403  403  403  401  200
PATCH  {org}/branding                         401  403  403  403  403  200  200  403  403  403  403* 403* 403  403  403  403  403  401  403
PUT    {org}/branding/logo                    401  403  403  403  403  200  200  403  403  403  403* 403* 403  403  403  403  403  401  403
DELETE {org}/branding/logo                    401  403  403  403  403  204  204  403  403  403  403* 403* 403  403  403  403  403  401  403

POST   {org}/setup-links                      401  403  403  403  403  201  201  403  403  403  403* 403* 403  403  403  403  403  401  403
GET    {org}/setup-links                      401  403  403  403  403  200  200  403  403  200  403* 403* 403  403  403  403  403  401  403
GET    {setup-link}                           401  403  403  403  403  200  200  403  403  200  403* 403* 403  403  403  403  403  401  403
DELETE {setup-link}                           401  403  403  403  403  204  204  403  403  403  403* 403* 403  403  403  403  403  401  403
POST   {setup-link}/parts/<setup_part>/apply  401  403  403  403  403  200  200  403  403  403  403* 403* 403  403  403  403  403  401  403
POST   {org}/connections                      401  403  403  403  403  201  201  403  403  403  403* 403* 403  403  403  403  403  401  403
GET    {org}/connections                      401  403  403  403  403  200  200  403  403  200  403* 403* 403  403  403  403  403  401  403
GET    {connection}                           401  403  403  403  403  200  200  403  403  200  403* 403* 403  403  403  403  403  401  403
PATCH  {connection}                           401  403  403  403  403  200  200  403  403  403  403* 403* 403  403  403  403  403  401  403
DELETE {connection}                           401  403  403  403  403  204  204  403  403  403  403* 403* 403  403  403  403  403  401  403
POST   {connection}/activate                  401  403  403  403  403  200  200  403  403  403  403* 403* 403  403  403  403  403  401  403
POST   {connection}/deactivate                401  403  403  403  403  200  200  403  403  403  403* 403* 403  403  403  403  403  401  403
GET    {connection}/groups                    401  403  403  403  403  200  200  403  403  200  403* 403* 403  403  403  403  403  401  403
POST   {connection}/groups                    401  403  403  403  403  201  201  403  403  403  403* 403* 403  403  403  403  403  401  403
DELETE {connection}/groups/<mapping_id>       401  403  403  403  403  204  204  403  403  403  403* 403* 403  403  403  403  403  401  403
GET    {connection}/people                    401  403  403  403  403  200  200  403  403  200  403* 403* 403  403  403  403  403  401  403
DELETE {connection}/people/<user_id>          401  403  403  403  403  204  204  403  403  403  403* 403* 403  403  403  403  403  401  403
POST   {connection}/check                     401  403  403  403  403  200  200  403  403  200  403* 403* 403  403  403  403  403  401  403
PUT    {connection}/client-secret             401  403  403  403  403  204  204  403  403  403  403* 403* 403  403  403  403  403  401  403
POST   {connection}/metadata                  401  403  403  403  403  200  200  403  403  403  403* 403* 403  403  403  403  403  401  403
POST   {connection}/keys                      401  403  403  403  403  201  201  403  403  403  403* 403* 403  403  403  403  403  401  403
POST   {connection}/keys/activate             401  403  403  403  403  200  200  403  403  403  403* 403* 403  403  403  403  403  401  403
POST   {connection}/certificates              401  403  403  403  403  201  201  403  403  403  403* 403* 403  403  403  403  403  401  403
DELETE {connection}/certificates/<fingerprint> 401  403  403  403  403  204  204  403  403  403  403* 403* 403  403  403  403  403  401  403

POST   {org}/domains                          401  403  403  403  403  200  200  403  403  403  403* 403* 403  403  403  403  403  401  403
GET    {org}/domains                          401  403  403  403  403  200  200  403  403  200  403* 403* 403  403  403  403  403  401  403
GET    {org}/domains/<domain>                 401  403  403  403  403  200  200  403  403  200  403* 403* 403  403  403  403  403  401  403
GET    {org}/domains/<domain>/accounts        401  403  403  403  403  200  200  403  403  200  403* 403* 403  403  403  403  403  401  403
GET    {org}/domains/<domain>/invitations     401  403  403  403  403  200  200  403  403  200  403* 403* 403  403  403  403  403  401  403
POST   {org}/domains/<domain>/verify          401  403  403  403  403  200  200  403  403  403  403* 403* 403  403  403  403  403  401  403
DELETE {org}/domains/<domain>                 401  403  403  403  403  204  204  403  403  403  403* 403* 403  403  403  403  403  401  403
GET    {org}/hrd                              401  403  403  403  403  200  200  403  403  200  403* 403* 403  403  403  403  403  401  403
PUT    {org}/hrd                              401  403  403  403  403  200  200  403  403  403  403* 403* 403  403  403  403  403  401  403
PUT    {org}/hrd/<domain>                     401  403  403  403  403  200  200  403  403  403  403* 403* 403  403  403  403  403  401  403
DELETE {org}/hrd/<domain>                     401  403  403  403  403  204  204  403  403  403  403* 403* 403  403  403  403  403  401  403

GET    {platform}/tiers                       401  403  403  403  403  403  403  200  403  403  403  403  403  403  403  403  403  401  403
GET    {platform}/organizations               401  403  403  403  403  403  403  200  403  403  403  403  403  403  403  403  403  401  403
GET    {governed}                             401  403  403  403  403  403  403  200  403  403  403  403  403  403  403  403  403  401  403
POST   {governed}/approve                     401  403  403  403  403  403  403  200  403  403  403  403  403  403  403  403  403  401  403
POST   {governed}/reject                      401  403  403  403  403  403  403  200  403  403  403  403  403  403  403  403  403  401  403
POST   {governed}/suspend                     401  403  403  403  403  403  403  200  403  403  403  403  403  403  403  403  403  401  403
POST   {governed}/activate                    401  403  403  403  403  403  403  200  403  403  403  403  403  403  403  403  403  401  403
PATCH  {governed}/tier                        401  403  403  403  403  403  403  200  403  403  403  403  403  403  403  403  403  401  403
DELETE {governed}/admin-networks              401  403  403  403  403  403  403  204  403  403  403  403  403  403  403  403  403  401  403
DELETE {governed}                             401  403  403  403  403  403  403  204  403  403  403  403  403  403  403  403  403  401  403

GET    {platform}/users/search                401  403  403  403  403  403  403  200  403  403  403  403  403  403  403  403  403  401  403
GET    {platform}/users/<user_id>             401  403  403  403  403  403  403  200  403  403  403  403  403  403  403  403  403  401  403
POST   {platform}/users/<user_id>/end-sessions 401 403 403 403 403 403 403 200 403 403 403 403 403 403 403 403 403 401 403
POST   {platform}/users/<user_id>/password-reset 401 403 403 403 403 403 403 200 403 403 403 403 403 403 403 403 403 401 403
GET    {platform}/users/<user_id>/mfa/status  401  403  403  403  403  403  403  200  403  403  403  403  403  403  403  403  403  401  403
DELETE {platform}/users/<user_id>/mfa         401  403  403  403  403  403  403  200  403  403  403  403  403  403  403  403  403  401  403
POST   {platform}/users/<user_id>/recovery    401  403  403  403  403  403  403  201  403  403  403  403  403  403  403  403  403  401  403
DELETE {platform}/users/<user_id>/recovery    401  403  403  403  403  403  403  204  403  403  403  403  403  403  403  403  403  401  403
POST   {platform}/users/<user_id>/deactivate  401  403  403  403  403  403  403  200  403  403  403  403  403  403  403  403  403  401  403
POST   {platform}/users/<user_id>/reactivate  401  403  403  403  403  403  403  200  403  403  403  403  403  403  403  403  403  401  403
GET    {platform}/users/<user_id>/mfa/events  401  403  403  403  403  403  403  200  403  403  403  403  403  403  403  403  403  401  403
GET    {platform}/users/<user_id>/privacy-log 401  403  403  403  403  403  403  200  403  403  403  403  403  403  403  403  403  401  403
GET    {platform}/sign-ins                    401  403  403  403  403  403  403  200  403  403  403  403  403  403  403  403  403  401  403
GET    {platform}/sign-ins/export             401  403  403  403  403  403  403  200  403  403  403  403  403  403  403  403  403  401  403
GET    {platform}/audit-log                   401  403  403  403  403  403  403  200  403  403  403  403  403  403  403  403  403  401  403
GET    {platform}/audit-log/export            401  403  403  403  403  403  403  200  403  403  403  403  403  403  403  403  403  401  403
GET    {platform}/audit-log/<entry_id>        401  403  403  403  403  403  403  200  403  403  403  403  403  403  403  403  403  401  403
GET    {platform}/mfa/metrics                 401  403  403  403  403  403  403  200  403  403  403  403  403  403  403  403  403  401  403
GET    {platform}/mfa/suspicious              401  403  403  403  403  403  403  200  403  403  403  403  403  403  403  403  403  401  403
POST   {platform}/impersonate/<user_id>       401  403  403  403  403  403  403  200  403  403  403  403  403  403  403  403  403  401  403
GET    {platform}/health                      401  403  403  403  403  403  403  200  403  403  403  403  403  403  403  403  403  401  403
GET    {platform}/health/checks               401  403  403  403  403  403  403  200  403  403  403  403  403  403  403  403  403  401  403
GET    {platform}/settings                    401  403  403  403  403  403  403  200  403  403  403  403  403  403  403  403  403  401  403
GET    {platform}/analytics/sign-ins          401  403  403  403  403  403  403  200  403  403  403  403  403  403  403  403  403  401  403
GET    {platform}/analytics/users             401  403  403  403  403  403  403  200  403  403  403  403  403  403  403  403  403  401  403
GET    {platform}/analytics/webhook-attempts  401  403  403  403  403  403  403  200  403  403  403  403  403  403  403  403  403  401  403
GET    {platform}/analytics/scim-requests     401  403  403  403  403  403  403  200  403  403  403  403  403  403  403  403  403  401  403
GET    {platform}/connections                 401  403  403  403  403  403  403  200  403  403  403  403  403  403  403  403  403  401  403
PUT    {platform}/connections/<provider>/logo 401  403  403  403  403  403  403  200  403  403  403  403  403  403  403  403  403  401  403
DELETE {platform}/connections/<provider>/logo 401  403  403  403  403  403  403  204  403  403  403  403  403  403  403  403  403  401  403

GET    {platform}/sign-in-policy              401  403  403  403  403  403  403  200  403  403  403  403  403  403  403  403  403  401  403
PUT    {platform}/sign-in-policy              401  403  403  403  403  403  403  200  403  403  403  403  403  403  403  403  403  401  403
POST   {platform}/sign-in-policy/preview      401  403  403  403  403  403  403  200  403  403  403  403  403  403  403  403  403  401  403
GET    {platform}/owners                      401  403  403  403  403  403  403  200  403  403  403  403  403  403  403  403  403  401  403
POST   {platform}/owners                      401  403  403  403  403  403  403  200  403  403  403  403  403  403  403  403  403  401  403
DELETE {platform}/owners/<user_id>            401  403  403  403  403  403  403  200  403  403  403  403  403  403  403  403  403  401  403

GET    {platform}/service-accounts            401  403  403  403  403  403  403  200  403  403  403  403  403  403  403  403  403  401  403
POST   {platform}/service-accounts            401  403  403  403  403  403  403  201  403  403  403  403  403  403  403  403  403  401  403
GET    {robot}                                401  403  403  403  403  403  403  200  403  403  403  403  403  403  403  403  403  401  403
PATCH  {robot}                                401  403  403  403  403  403  403  200  403  403  403  403  403  403  403  403  403  401  403
GET    {robot}/credentials                    401  403  403  403  403  403  403  200  403  403  403  403  403  403  403  403  403  401  403
POST   {robot}/credentials                    401  403  403  403  403  403  403  201  403  403  403  403  403  403  403  403  403  401  403
DELETE {robot}/credentials/<credential_id>    401  403  403  403  403  403  403  204  403  403  403  403  403  403  403  403  403  401  403
DELETE {robot}                                401  403  403  403  403  403  403  204  403  403  403  403  403  403  403  403  403  401  403

GET    /health                                200  200  200  200  200  200  200  200  200  200  200  200  200  200  200  200  200  200  200
GET    /health/live                           200  200  200  200  200  200  200  200  200  200  200  200  200  200  200  200  200  200  200
GET    /health/ready                          200  200  200  200  200  200  200  200  200  200  200  200  200  200  200  200  200  200  200
GET    /metrics                               200  200  200  200  200  200  200  200  200  200  200  200  200  200  200  200  200  200  200
GET    /.well-known/jwks.json                 200  200  200  200  200  200  200  200  200  200  200  200  200  200  200  200  200  200  200
GET    /.well-known/openid-configuration      200  200  200  200  200  200  200  200  200  200  200  200  200  200  200  200  200  200  200
GET    /.well-known/authzen-configuration     200  200  200  200  200  200  200  200  200  200  200  200  200  200  200  200  200  200  200
GET    /.well-known/oauth-authorization-server 200  200  200  200  200  200  200  200  200  200  200  200  200  200  200  200  200  200  200
GET    /.well-known/oauth-protected-resource/api 200 200 200 200 200 200 200 200 200 200 200 200 200 200 200 200 200 200 200
GET    /.well-known/webauthn                  200  200  200  200  200  200  200  200  200  200  200  200  200  200  200  200  200  200  200
GET    /.well-known/apple-app-site-association 404 404 404 404 404 404 404 404 404 404 404 404 404 404 404 404 404 404 404
GET    /.well-known/assetlinks.json           404  404  404  404  404  404  404  404  404  404  404  404  404  404  404  404  404  404  404
GET    /openapi.json                          200  200  200  200  200  200  200  200  200  200  200  200  200  200  200  200  200  200  200
GET    /docs                                  200  200  200  200  200  200  200  200  200  200  200  200  200  200  200  200  200  200  200
GET    /docs/api                              200  200  200  200  200  200  200  200  200  200  200  200  200  200  200  200  200  200  200
GET    /docs/search                           200  200  200  200  200  200  200  200  200  200  200  200  200  200  200  200  200  200  200
GET    /docs/<path:page>                      200  200  200  200  200  200  200  200  200  200  200  200  200  200  200  200  200  200  200
GET    /assets/<name>                         200  200  200  200  200  200  200  200  200  200  200  200  200  200  200  200  200  200  200
GET    /images/<image_key>/<size>             404  404  404  404  404  404  404  404  404  404  404  404  404  404  404  404  404  404  404
GET    /                                      303  303  303  303  303  303  303  303  303  303  303  303  303  303  303  303  303  303  303
"""

# The service API. It reads only API keys, and all other routes ignore them: user tokens get 401
# here, and API keys count as no credentials elsewhere.
SERVICE_INTERFACE: Final = """
                                              key  k-r  k-w  k-2  k-f  k-s  k-x

GET    /api/service/info                      200  200  403  200  200  403* 401
PATCH  /api/service/info                      200  403  200  200  200  403* 401
GET    /api/service/analytics                 200  200  403  200  200  403* 401
GET    /api/service/users                     200  200  403  200  200  403* 401
POST   /api/service/users                     200  403  200  200  200  403* 401
GET    /api/service/users/<user_id>           200  200  403  404  404  403* 401
PATCH  /api/service/users/<user_id>           200  403  200  404  404  403* 401
DELETE /api/service/users/<user_id>           204  403  204  404  404  403* 401
GET    /api/service/authorization             200  200  403  200  200  403* 401
PUT    /api/service/authorization             200  403  200  200  200  403* 401
GET    /api/service/users/<user_id>/roles     200  200  403  404  404  403* 401
PUT    {service-role}/users/<user_id>         204  403  204  404  404  403* 401
DELETE {service-role}/users/<user_id>         204  403  204  404  404  403* 401
PUT    {service-role}/groups/<group_id>       204  403  204  404  404  403* 401
DELETE {service-role}/groups/<group_id>       204  403  204  404  404  403* 401
POST   /access/v1/evaluation                  200  403  200  200  200  403* 401
POST   /access/v1/evaluations                 200  403  200  200  200  403* 401
GET    /api/service/users/<user_id>/attributes 200  200  403  404  404  403* 401
PATCH  /api/service/users/<user_id>/attributes 200  403  200  404  404  403* 401
GET    /api/service/subscriptions             200  200  403  200  200  403* 401
POST   /api/service/subscriptions             200  403  200  404  404  403* 401
GET    /api/service/subscriptions/<user_id>   200  200  403  404  404  403* 401
PATCH  /api/service/subscriptions/<user_id>   200  403  200  404  404  403* 401
DELETE /api/service/subscriptions/<user_id>   204  403  204  404  404  403* 401
"""

# SCIM. It reads only SCIM tokens: every other credential gets 401 here, and SCIM tokens get 401
# elsewhere.
SCIM: Final = """
                                              dir  d-f  d-s  d-x

GET    {scim}/Users                           200  200  403* 401
POST   {scim}/Users                           201  201  403* 401
GET    {scim}/Users/<user_id>                 200  404  403* 401
PUT    {scim}/Users/<user_id>                 200  404  403* 401
PATCH  {scim}/Users/<user_id>                 200  404  403* 401
DELETE {scim}/Users/<user_id>                 204  404  403* 401
GET    {scim}/Groups                          200  200  403* 401
POST   {scim}/Groups                          201  201  403* 401
GET    {scim}/Groups/<group_id>               200  404  403* 401
GET    {scim}/Groups/<group_id>#pushed        200  404  403* 401
PUT    {scim}/Groups/<group_id>               200  404  403* 401
PUT    {scim}/Groups/<group_id>#pushed        200  404  403* 401
PATCH  {scim}/Groups/<group_id>               200  404  403* 401
PATCH  {scim}/Groups/<group_id>#pushed        204  404  403* 401
DELETE {scim}/Groups/<group_id>               403  404  403* 401
DELETE {scim}/Groups/<group_id>#pushed        204  404  403* 401
GET    {scim}/ServiceProviderConfig           200  200  403* 401
GET    {scim}/ResourceTypes                   200  200  403* 401
GET    {scim}/ResourceTypes/<resource_type>   200  200  403* 401
GET    {scim}/Schemas                         200  200  403* 401
GET    {scim}/Schemas/<schema_id>             200  200  403* 401
GET    {scim}/Me                              501  501  403* 401
POST   {scim}/Me                              501  501  403* 401
PUT    {scim}/Me                              501  501  403* 401
PATCH  {scim}/Me                              501  501  403* 401
DELETE {scim}/Me                              501  501  403* 401
GET    {scim}/Bulk                            501  501  403* 401
POST   {scim}/Bulk                            501  501  403* 401
PUT    {scim}/Bulk                            501  501  403* 401
PATCH  {scim}/Bulk                            501  501  403* 401
DELETE {scim}/Bulk                            501  501  403* 401
"""

# The pages behind an opened set-up link. They read only its cookie, which opens nothing else.
SETUP: Final = """
                                              set

GET    /setup/steps                           200
POST   /setup/steps/connection                200
POST   /setup/steps/connection/values         200
POST   /setup/steps/connection/check          200
GET    /setup/steps/connection/metadata       409
POST   /setup/steps/connection/metadata       409
POST   /setup/steps/connection/key            409
GET    /setup/steps/connection/test           200
POST   /setup/steps/domain                    303
POST   /setup/steps/domain/check              400
POST   /setup/steps/domain/remove             400
POST   /setup/steps/directory                 200
POST   /setup/steps/certificate               400
POST   /setup/steps/certificate/metadata      400
GET    /setup/steps/certificate/test          400
POST   /setup/steps/siem                      303
POST   /setup/steps/finish                    200
"""

# The pages. They read only the browser's cookie, and all other routes ignore it: every other
# credential counts as none here.
PAGES: Final = """
                                                     else bro  b-m  b-s  b-x

GET    /app/sign-in                                  200  303  303  303  200
POST   /app/sign-in                                  303  303  303  303  303
POST   /app/sign-in/passkey                          400  400  400  400  400
POST   /app/sign-in/email                            303  303  303  303  303
GET    /app/flow/<flow_id>                           303  303  303  200  303
GET    /app/flow/<flow_id>/sign-in                   200  303  303  200  200
POST   /app/flow/<flow_id>/sign-in                   303  303  303  303  303
POST   /app/flow/<flow_id>/sign-in/passkey           400  400  400  200  400
GET    /app/flow/<flow_id>/code                      200  303  303  303  200
POST   /app/flow/<flow_id>/code                      303  303  303  303  303
POST   /app/flow/<flow_id>/sign-in/email             303  303  303  200  303
GET    /app/flow/<flow_id>/forgot-password           200  200  200  200  200
POST   /app/flow/<flow_id>/forgot-password           200  200  200  200  200
GET    /app/flow/<flow_id>/sign-up                   200  303  303  200  200
POST   /app/flow/<flow_id>/sign-up                   200  200  200  200  200
GET    /app/flow/<flow_id>/resend-verification       200  200  200  200  200
POST   /app/flow/<flow_id>/resend-verification       200  200  200  200  200
GET    /app/flow/<flow_id>/confirm                   303  303  303  200  303
POST   /app/flow/<flow_id>/confirm                   303  303  303  200  303
GET    /app/flow/<flow_id>/consent                   303  303  303  200  303
POST   /app/flow/<flow_id>/consent                   303  303  303  200  303
GET    /app/flow/<flow_id>/link                      303  303  303  303  303
POST   /app/flow/<flow_id>/link                      303  303  303  303  303
POST   /app/flow/<flow_id>/switch                    303  303  303  303  303
GET    /app/flow/<flow_id>/select                    303  303  303  200  303
POST   /app/flow/<flow_id>/select                    303  303  303  200  303
GET    /app/flow/<flow_id>/email                     200  200  200  200  200
POST   /app/flow/<flow_id>/email                     303  303  303  303  303
POST   /app/sign-out                                 303  303  303  303  303
GET    /app/forgot-password                          200  200  200  200  200
POST   /app/forgot-password                          200  200  200  200  200
GET    /app/sign-up                                  200  303  303  303  200
POST   /app/sign-up                                  200  200  200  200  200
GET    /app/resend-verification                      200  200  200  200  200
POST   /app/resend-verification                      200  200  200  200  200
GET    /setup                                        200  200  200  400  200
POST   /setup                                        303  303  303  400  303
POST   /setup/code                                   400  400  400  400  400
GET    /auth/recover-owner                           200  200  200  200  200
POST   /auth/recover-owner                           303  303  303  303  303
GET    /auth/recover                                 200  200  200  200  200
POST   /auth/recover                                 400  400  400  400  400
GET    /auth/recover/<recovery_id>                   400  400  400  400  400
POST   /auth/recover/<recovery_id>/app               400  400  400  400  400
POST   /auth/recover/<recovery_id>/passkey           400  400  400  400  400

GET    /app/reauthenticate                           303* 303  303  303  303*
POST   /app/reauthenticate                           303* 303  303  303  303*
POST   /app/reauthenticate/email                     303* 303  303  303  303*
POST   /app/reauthenticate/connection                303* 400  400  400  303*
POST   /app/reauthenticate/<provider:provider>       303* 400  400  400  303*
GET    /app/passkey                                  303* 303  303  303  303*
POST   /app/passkey                                  303* 303  303  303  303*
GET    /app/enroll                                   303* 303  303  303  303*
POST   /app/enroll                                   303* 303  303  303  303*
GET    /app/signed-in                                303* 200  200  200  303*

GET    /auth/device/verify                           303* 200  200  200  303*
GET    /auth/authorize                               303  303  303  403* 303
POST   /auth/authorize                               303  303  303  403* 303
GET    /auth/end-session                             200  200  200  200  200
POST   /auth/end-session                             200  200  200  200  200

GET    /app                                          303* 303  303  303  303*
GET    /app/organizations/new                        303* 200  200  200  303*
POST   /app/organizations/new                        303* 303  303  303  303*
GET    /app/account                                  303* 200  200  200  303*
POST   /app/account/export                           303* 200  200  200  303*
POST   /app/impersonation/end                        303* 303  303  303  303*
GET    /app/account/profile                          303* 200  200  200  303*
POST   /app/account/profile                          303* 303  303  303  303*
GET    /app/account/attributes                       303* 200  200  200  303*
POST   /app/account/attributes                       303* 303  303  303  303*
POST   /app/account/profile/picture                  303* 303  303  303  303*
POST   /app/account/profile/picture/remove           303* 303  303  303  303*
GET    /app/account/subscriptions                    303* 200  200  200  303*
GET    /app/account/subscriptions/<subscription_id>  303* 404  404  404  303*
POST   /app/account/subscriptions/<subscription_id>/cancel 303* 404  404  404  303*
GET    /app/account/delete                           303* 200  200  200  303*
POST   /app/account/delete                           303* 403  200  403  303*
GET    /app/account/email                            303* 200  200  200  303*
POST   /app/account/email                            303* 303  303  303  303*
POST   /app/account/email/verification               303* 303  303  303  303*
POST   /app/account/email/cancel                     303* 303  303  303  303*
GET    /app/account/password                         303* 200  200  200  303*
POST   /app/account/password                         303* 303  303  303  303*
GET    /app/account/security                         303* 200  200  200  303*
GET    /app/account/security/sign-ins                303* 200  200  200  303*
GET    /app/account/two-factor                       303* 303  303  303  303*
GET    /app/account/two-factor/log                   303* 200  200  200  303*
GET    /app/account/exports                          303* 200  200  200  303*
GET    /app/account/password/remove                  303* 200  200  200  303*
POST   /app/account/password/remove                  303* 303  303  303  303*
GET    /app/account/passkeys/new                     303* 200  200  200  303*
POST   /app/account/passkeys                         303* 303  303  303  303*
GET    /app/account/passkeys/<passkey_id>            303* 200  200  200  303*
GET    /app/account/passkeys/<passkey_id>#other      303* 404  404  404  303*
POST   /app/account/passkeys/<passkey_id>/name       303* 303  303  303  303*
GET    /app/account/passkeys/<passkey_id>/delete     303* 200  200  200  303*
POST   /app/account/passkeys/<passkey_id>/delete     303* 303  303  303  303*
GET    /app/account/passkeys/second-factor           303* 303  303  303  303*
POST   /app/account/passkeys/second-factor           303* 303  303  303  303*
GET    /app/account/passkeys/lost                    303* 200  200  200  303*
POST   /app/account/passkeys/lost                    303* 303  400  303  303*
POST   /app/account/passkeys/lost/cancel             303* 404  404  404  303*
POST   /app/account/passkeys/lost/remove             303* 303  400  303  303*
POST   /app/account/two-factor/setup                 303* 200  400  200  303*
POST   /app/account/two-factor/confirm               303* 200  400  200  303*
POST   /app/account/two-factor/backup-codes          303* 200  200  200  303*
GET    /app/account/two-factor/disable               303* 303  200  303  303*
POST   /app/account/two-factor/disable               303* 303  303  303  303*
GET    /app/account/identities                       303* 200  200  200  303*
POST   /app/account/identities/<provider:provider>/link 303* 200  200  200  303*
POST   /app/account/identities/<provider:provider>/unlink 303* 303  303  303  303*
POST   /app/account/identities/connections/<connection_id>/unlink 303* 303  303  303  303*
GET    /app/account/devices                          303* 303  303  303  303*
GET    /app/account/devices/<device_id>              303* 200  200  200  303*
GET    /app/account/devices/<device_id>#other        303* 403  403  403  303*
POST   /app/account/devices/<device_id>/name         303* 303  303  303  303*
POST   /app/account/devices/<device_id>/revoke       303* 303  303  303  303*
POST   /app/account/devices/<device_id>/revoke#other 303* 403  403  403  303*
GET    /app/account/applications                     303* 200  200  200  303*
GET    /app/account/consents                         303* 200  200  200  303*
GET    /app/account/consents/<service_id>            303* 200  200  200  303*
POST   /app/account/consents/<service_id>/withdraw   303* 303  303  303  303*
GET    /app/account/organizations                    303* 200  200  200  303*
POST   /app/account/organizations/<org_slug>/confirm 303* 303  303  303  303*
GET    /app/account/organizations/<org_slug>/leave   303* 200  200  200  303*
POST   /app/account/organizations/<org_slug>/leave   303* 400  303  400  303*
GET    /app/account/sessions                         303* 303  303  303  303*
POST   /app/account/sessions/<session_id>/end        303* 303  303  303  303*
POST   /app/account/sessions/end-others              303* 303  303  303  303*
GET    /app/account/personal-tokens                           303* 200  200  200  303*
GET    /app/account/personal-tokens/new                       303* 200  200  200  303*
POST   /app/account/personal-tokens/new                       303* 200  200  200  303*
POST   /app/account/personal-tokens/<personal_token_id>/revoke 303* 303  303  303  303*
"""


# Routes for programs and browsers. They accept the credentials of programs and of browsers, but no
# API keys.
ALIKE: Final = """
                                      ano  str  gue  for  mem  adm  own  pla  a-m  a-o  sus  pen  t-e  t-f  t-o  t-p  t-s  wai  mfa  bro  b-m  b-s  b-x

GET    {service}/saml/login           401  403  403  403  200  200  200  403  403  403  403* 403* 403  403  403  403  403  401  200  200  200  403* 401
POST   /auth/device/verify            401  200  200  200  200  200  200  200  403  403  403* 403* 403  403  403  403  403  401  200  415  415  415  401
POST   /auth/device/verify#form       401  200  200  200  200  200  200  200  403  403  403* 403* 403  403  403  403  403  401  200  200  200  403* 401
"""  # noqa: E501  (a table)

# A second certificate for the service, with the active certificate's key. Its end is a time after every test.
STANDBY_CERTIFICATE: Final = """
    insert into saml_certificates (id, org_id, service_id, certificate, private_key, valid_from, valid_until, created_at,
                                   deactivated_at, standby, kept_until)
    select gen_random_uuid(), org_id, service_id, certificate, private_key, valid_from, valid_until, created_at, created_at, {state}
    from saml_certificates where service_id = '{service_id}' and deactivated_at is null
    on conflict do nothing"""
NEXT_CERTIFICATE: Final = STANDBY_CERTIFICATE.replace("{state}", "'next', null")
PREVIOUS_CERTIFICATE: Final = STANDBY_CERTIFICATE.replace("{state}", "'previous', valid_until")
HAS_MFA: Final = (
    f"with used as ({USED_IN_SESSIONS} where user_id = '{{own_id}}') "  # noqa: S608
    "update users set mfa_enabled_at = now() where id = '{own_id}'"
)

# A passkey has verified its user, and the sessions have shown it.
WITH_PASSKEY: Final = """
    with verified as (update passkeys set user_verified = true where user_id = '{own_id}')
    update sessions set strength = 3, proofs = jsonb_build_array(
        jsonb_build_object('method', 'password', 'at', created_at),
        jsonb_build_object('method', 'passkey', 'at', created_at, 'user_verified', true, 'phishing_resistant', true))
    where user_id = '{own_id}' and impersonator_id is null and not personal_token"""
# The sessions have shown the password and the mailbox.
WITH_MAILBOX: Final = """
    update sessions set proofs = jsonb_build_array(
        jsonb_build_object('method', 'password', 'at', created_at), jsonb_build_object('method', 'email', 'at', created_at))
    where user_id = '{own_id}' and impersonator_id is null and not personal_token"""
AFTER_WAIT: Final = f"""
    with shown as ({WITH_MAILBOX} returning created_at)
    update users set passkey_wait_at = (select max(created_at) - interval '1 day' from shown) where id = '{{own_id}}'"""  # noqa: S608  (a constant)

MAPPING_ID: Final = "00000000-0000-4000-8000-000000000059"
WITH_MAPPING: Final[dict[str, Any]] = {
    "things": {"mapping_id": MAPPING_ID},
    "setup_sql": f"""
        insert into connection_groups (id, org_id, connection_id, value, group_id, mapped_by, mapped_at)
        values ('{MAPPING_ID}', '{{org_id}}', '{{connection_id}}', 'sales', '{{group_id}}', '{{user_id}}', now())""",  # noqa: S608  (a table of tests)
}
WITH_LINK: Final = """
    insert into connection_identities (org_id, connection_id, user_id, subject, linked_at, last_used_at)
    select c.org_id, c.id, u.id, 'of ' || u.id, now(), now() from connections c, users u
    where c.id = '{connection_id}' and u.id = '{own_id}' on conflict do nothing"""
# The caller's test sign-in at the test provider. The caller's id stands for its secret.
WITH_TEST: Final = """
    with tried as (
        update connections set preset = 'test', state = 'draft', first_activated_at = null where id = '{connection_id}' returning 1)
    insert into sign_in_flows (id, browser_hash, target, request, wants_fresh, keeps_trust, proofs, challenge, challenge_hash,
                               challenge_user_id, challenge_begun_at, challenge_expires_at, begun_at, expires_at)
    select gen_random_uuid(), sha256('{device}'), 'test', '/app', false, true, '[]', jsonb_build_object('connection', '{connection_id}'),
           sha256('{own_id}'), id, now(), '2100-01-01', now(), '2100-01-01' from users where id = '{own_id}' on conflict do nothing"""
# The rows that a request needs, or must not find, so that it changes something.
GOES_ON: Final = "update service_accounts set ends_at = created_at + interval '100 years', kept_rights = '{{}}' where id = '{account_id}'"
MADE_BY_PROGRAM: Final = "update scim_tokens set created_by = '{account_id}' where id = '{live_token_id}'"
WITH_CLAIMS: Final = """
    with declared as (
        insert into service_claims (service_id, org_id, document, sources, changed_at)
        values ('{service_id}', '{org_id}', '{{"fixed": {{"tenant": "x"}}}}', '{{}}', now()) on conflict do nothing)
    update services set claims_version = nextval('service_claim_versions') where id = '{service_id}'"""
WITH_LOGO: Final = "update services set logo_url = 'https://anywhere.example/logo.png' where id = '{service_id}'"
WITH_PROVIDER_LOGO: Final = (
    "insert into images (connection_id, key, small, large, created_at) values ('{id}', 'logo', '', '', now())".replace(
        "{id}", str(PLATFORM_CONNECTIONS[CODEHOST][0])
    )
)
WITH_PICTURE: Final = "update users set picture = 'https://anywhere.example/me.png' where id = '{own_id}'"
WITH_POLICY: Final = """
    insert into sign_in_policies (id, org_id, service_id, rules, changed_at)
    values (gen_random_uuid(), '{org_id}', '{service_id}', '{{}}', now()) on conflict do nothing"""
BLOCKED: Final = """
    insert into end_user_blocks (org_id, user_id, since, email) select '{org_id}', id, now(), email from users where id = '{end_user_id}'
    on conflict do nothing"""
DEACTIVATED: Final = "update users set platform_deactivated_at = now(), deactivated_at = now() where id = '{guarded_id}'"
WITH_BREAK_GLASS: Final = "insert into break_glass_users (org_id, user_id) values ('{org_id}', '{user_id}') on conflict do nothing"
UNCONFIRMED: Final = "update memberships set confirmed_at = null where user_id = '{own_id}' and org_id = '{org_id}'"
WITH_EMAIL_CHANGE: Final = """
    insert into email_changes (id, user_id, session_id, old_email, new_email, requested_at, expires_at, undo_until)
    select gen_random_uuid(), id, id, email, 'next@anywhere.example', now(), '2100-01-01', '2100-01-01' from users where id = '{own_id}'"""
WITHOUT: Final = {
    "of service": "delete from service_groups_assigned where group_id = '{group_id}'",
    "of role": "delete from service_role_groups where group_id = '{group_id}'",
    "of resource": "delete from api_resource_groups_assigned where group_id = '{group_id}'",
    "of account": "delete from api_resource_service_accounts where service_account_id = '{account_id}'",
    "users": "delete from service_role_users where user_id = '{end_user_id}'",
}
INACTIVE: Final = "update connections set state = 'inactive' where org_id = '{org_id}'"
ORG: Final = "/api/organizations/<org_slug>"
PAGES_OF_ORG: Final = "/app/organizations/<org_slug>"
APP_PAGES: Final = f"{PAGES_OF_ORG}/applications/<service_slug>"
PLATFORM_ORGS: Final = "/app/platform/organizations/<org_id>"
PEOPLE_PAGES: Final = "/app/platform/people/<user_id>"
PERSON_ACTIONS: Final = (
    "end-sessions",
    "password-reset",
    "second-factor",
    "recovery",
    "recovery/cancel",
    "deactivate",
    "reactivate",
    "impersonate",
    "export",
    "anonymize",
)
SERVICE: Final = f"{ORG}/services/<service_slug>"
RESOURCE: Final = f"{ORG}/api-resources/<resource_id>"
ACCOUNT: Final = f"{ORG}/service-accounts/<account_id>"
PLATFORM_ACCOUNT: Final = "/api/platform/service-accounts/<account_id>"
ROBOT_PAGES: Final = "/app/platform/service-accounts/<account_id>"
THEIR_ACCOUNT: Final = {"account_id": "{platform_account_id}", "credential_id": "{platform_credential_id}"}
RESOURCE_PAGES: Final = "/app/organizations/<org_slug>/api-resources"
SHORT: Final = {
    "{org}": ORG,
    "{group}": "/api/organizations/<org_slug>/groups/<group_id>",
    "{service}": SERVICE,
    "{resource}": RESOURCE,
    "{grants}": f"{RESOURCE}/external-clients/grants",
    "{account}": ACCOUNT,
    "{robot}": PLATFORM_ACCOUNT,
    "{own-token}": "/api/user/personal-tokens/<personal_token_id>",
    "{reauthentication-options}": "/api/auth/reauthenticate/passkey/options",
    "{connection}": f"{ORG}/connections/<connection_slug>",
    "{at_connection}": "/auth/connections/<connection_id>",
    "{setup-link}": f"{ORG}/setup-links/<setup_link_id>",
    "{registration-token}": f"{ORG}/registration-tokens/<registration_token_id>",
    "{member-token}": f"{ORG}/personal-tokens/<personal_token_id>",
    "{saml}": "/saml/<org_slug>/<service_slug>",
    "{role}": f"{SERVICE}/roles/<role_slug>",
    "{permission}": f"{SERVICE}/permissions/<permission_name>",
    "{service-role}": "/api/service/roles/<role_slug>",
    "{invitation}": f"{ORG}/invitations/<invitation_id>",
    "{webhook}": f"{ORG}/webhooks/<webhook_id>",
    "{platform}": "/api/platform",
    "{scim}": "/scim/v2",
    "{governed}": "/api/platform/organizations/<org_id>",
}

PICTURE: Final = png(8, 8)
# A browser without a session and the fields in its forms, and a browser with a session.
BROWSER: Final = {"gatehouse-device": "{device}"}
# A connection with SAML instead of OpenID Connect, and a response to a request that was never sent.
WITH_SAML: Final = "update connections set protocol = 'saml', settings = '{{}}', first_activated_at = null where id = '{connection_id}'"
UNREQUESTED: Final = encode_base64(
    b'<p:Response xmlns:p="urn:oasis:names:tc:SAML:2.0:protocol" ID="_1" Version="2.0" InResponseTo="_made_up"/>'
)
OF_THIS_BROWSER: Final = {"form_token": "{browser_token}"}
OF_THE_SESSION: Final = {"form_token": "{form_token}"}
DOCUMENT: Final = {
    "permissions": [{"name": "another:permission", "description": "Another text"}],
    "roles": [{"slug": "{role_slug}", "name": "Another One", "description": "Another text", "permissions": ["another:permission"]}],
}
PLAN: Final = {"price_cents": 100, "currency": "usd", "features": ["exports"], "billing_price_id": "price_new"}
NEW_DOCUMENT: Final = {"document": '{{"permissions": [], "roles": []}}', "version": "0"}
MADE_BY_ORGANIZATION: Final = "update users set origin = 'api_key', origin_org_id = '{org_id}' where id = '{end_user_id}'"
MEMBER_MADE_BY_ORGANIZATION: Final = MADE_BY_ORGANIZATION.replace("end_user_id", "user_id")
# Every user has a recovery that the platform issued (belongings.py).
RECOVERED_BY_ORGANIZATION: Final = (
    "with recovered as (update account_recoveries set org_id = '{org_id}' where user_id = '{end_user_id}') " + MADE_BY_ORGANIZATION  # noqa: S608  (no input)
)
MEMBER_RECOVERED_BY_ORGANIZATION: Final = RECOVERED_BY_ORGANIZATION.replace("end_user_id", "user_id")
WITH_NETWORKS: Final = """
    insert into sign_in_policies (id, org_id, rules, changed_at)
    values (gen_random_uuid(), '{org_id}', jsonb_build_object('admin_networks', array['198.51.100.0/24']), now())
    on conflict on constraint sign_in_policies_key do update set rules = excluded.rules"""
# The owner has just used a second factor.
WITH_IMPOSED_RULE: Final = """
    with proved as (
        update sessions s set proofs = jsonb_build_array(
            jsonb_build_object('method', 'password', 'at', s.created_at), jsonb_build_object('method', 'totp', 'at', s.created_at))
        from memberships m
        where m.org_id = '{org_id}' and m.role = 'owner' and s.user_id = m.user_id and s.impersonator_id is null and not s.personal_token)
    insert into sign_in_policies (id, org_id, rules, owner_rules, changed_at)
    values (gen_random_uuid(), '{org_id}', jsonb_build_object('session_idle_minutes', 1440), jsonb_build_object(), now())
    on conflict on constraint sign_in_policies_key do update set rules = excluded.rules, owner_rules = excluded.owner_rules"""
END_USER: Final = {"user_id": "{end_user_id}"}
LOST: Final = {"reason": "a lost telephone"}
SELECTED_MEMBER: Final = {**OF_THE_SESSION, "user:{user_id}": "yes"}
IN_FLOW: Final[dict[str, Any]] = {"things": {"flow_id": "{flow}"}, "cookies": BROWSER}
WITH_CODE: Final[dict[str, Any]] = {"things": {"flow_id": "{code_flow}"}, "cookies": BROWSER}
AGREES: Final = Request(form={**OF_THE_SESSION, "answer": "continue", "question": "confirm"}, **IN_FLOW)
WITH_REASON: Final = {**OF_THE_SESSION, "reason": "asked for help"}
# Only an account with a second factor can own the platform.
WITH_SECOND_FACTOR: Final = "update users set mfa_enabled_at = now() where id = '{user_id}'"
GUARDED: Final = {"user_id": "{guarded_id}"}
OF_SOMEBODY_ELSE: Final = {"device_id": "{further_device_id}"}
PASSKEY_OF_ANOTHER: Final = {"passkey_id": "{further_passkey_id}"}
NEW_CREDENTIAL: Final = {
    **{"id": "{new_credential_id}", "rawId": "{new_credential_id}", "type": "public-key"},
    "response": {"clientDataJSON": "{client_data}", "attestationObject": "{attestation}"},
}


def as_text(credential: Mapping[str, Any]) -> str:
    """Return a credential as a form field, in which `{name}` stands for a thing of the caller."""
    return re.sub(r"\{\{(\w+)\}\}", r"{\1}", json.dumps(credential).replace("{", "{{").replace("}", "}}"))


UNKNOWN_CREDENTIAL: Final = {
    **{"id": "AAAA", "rawId": "AAAA", "type": "public-key"},
    "response": {"clientDataJSON": "AAAA", "authenticatorData": "AAAA", "signature": "AAAA"},
}
ONESELF: Final = {"user_id": "{own_id}"}
AUTHORIZATION: Final = {"org": "{org_slug}", "service": "{service_slug}"}

HAS_CONSENT: Final = """
    insert into consents (user_id, org_id, service_id, scope, granted_at)
    select '{own_id}', org_id, id, array['openid'], now() from services where id = '{service_id}' on conflict do nothing"""

# The user who agreed to the external client.
OF_EXTERNAL_CLIENT: Final = {"user_id": "{end_user_id}", "client_id": "{external_client_id}"}

OFFERS_ADMIN: Final = "update invitations set role = 'admin' where id = '{invitation_id}'"
# What an external client asks for.
OF_REQUEST: Final = {
    **{"resource": "https://api.{org_slug}.example/", "scope": "{org_slug}:orders"},
    **{"code_challenge": "E9Melhoa2OwvFrEMTJguCHaoeK1t8URWbuGJSstw-cM", "code_challenge_method": "S256"},
}

# The requests that succeed for allowed callers. A route that needs nothing has no entry.
QUESTION: Final = {
    "subject": {"type": "user", "id": "{end_user_id}"},
    "action": {"name": "documents:read"},
    "resource": {"type": "document", "id": "1"},
}
REQUESTS: Final[Mapping[str, Request]] = {
    "POST /api/auth/register": Request({"email": "newcomer@anywhere.example", "password": "a good password"}),
    "GET /auth/verify-email": Request(query={"token": "{verification_token}"}),
    "POST /api/auth/forgot-password": Request({"email": "{own_email}"}),
    "POST /api/auth/reset-password": Request({"token": "{reset_token}", "new_password": "another good password"}),
    "GET /auth/reset-password": Request(query={"token": "{reset_token}"}),
    "POST /auth/reset-password": Request(form={"token": "{reset_token}", "new_password": "another good password"}),
    "GET /auth/undo": Request(query={"token": "{undo_token}"}),
    "POST /auth/undo": Request(form={"token": "{undo_token}"}),
    "POST /api/auth/resend-verification": Request({"email": "{own_email}"}),
    "PATCH /api/user": Request(
        {
            **{"email": "moved@anywhere.example", "picture": "https://anywhere.example/me.png", "zoneinfo": "Europe/Rome", "locale": "it"},
            **{"name": "A New Name", "given_name": "A", "middle_name": "New", "family_name": "Name", "nickname": "New", "gender": "none"},
            **{"preferred_username": "new", "birthdate": "1990-01-01", "profile": None, "website": None},
        }
    ),
    "POST /api/user/set-password": Request(
        {"new_password": "another good password"}, setup_sql="update users set password_hash = null where id = '{own_id}'"
    ),
    "POST /api/user/change-password": Request({"current_password": "{password}", "new_password": "another good password"}),
    "POST /api/auth/reauthenticate": Request({"password": "{password}"}),
    "POST /app/enroll": Request(form=OF_THE_SESSION),
    "POST /app/reauthenticate": Request(form={**OF_THE_SESSION, "password": "{password}"}),
    "POST /app/reauthenticate/connection": Request(form=OF_THE_SESSION),
    "POST /app/reauthenticate/email": Request(form=OF_THE_SESSION),
    "POST /app/reauthenticate/<provider:provider>": Request(form=OF_THE_SESSION, things={"provider": "websuite"}),
    "POST /api/auth/login": Request({"email": "{own_email}", "password": "{password}"}),
    "POST /api/auth/refresh": Request({"refresh_token": "{refresh_token}"}),
    "POST /api/auth/mfa/verify": Request({"code": "{code}", "trust_device": True}),
    "POST /api/user/mfa/verify": Request({"code": "{code}"}),
    "DELETE /api/user/mfa": Request(setup_sql=HAS_MFA),
    "POST /api/user/mfa/backup-codes/regenerate": Request(setup_sql=HAS_MFA),
    "DELETE /api/user/consents/<service_id>": Request(setup_sql=HAS_CONSENT),
    "POST /api/auth/passkey": Request({"credential": UNKNOWN_CREDENTIAL, "saml_state": "none"}),
    "POST /api/user/passkeys": Request({"credential": NEW_CREDENTIAL}),
    "PUT /api/user/passkeys/second-factor": Request({"enabled": True}),
    "PATCH /api/user/passkeys/<passkey_id>": Request({"name": "A New Name"}),
    "PATCH /api/user/passkeys/<passkey_id>#other": Request({"name": "A New Name"}, things=PASSKEY_OF_ANOTHER),
    "DELETE /api/user/passkeys/<passkey_id>#other": Request(things=PASSKEY_OF_ANOTHER),
    "DELETE /api/user/password": Request(setup_sql=WITH_PASSKEY),
    "POST /api/user/passkeys/wait": Request(setup_sql=WITH_MAILBOX),
    "DELETE /api/user/passkeys": Request(setup_sql=AFTER_WAIT),
    "POST /api/user/personal-tokens": Request({"name": "A New Token", "scopes": ["account:read"]}),
    f"DELETE {ORG}/personal-tokens/<personal_token_id>": Request(things={"personal_token_id": "{organization_token_id}"}),
    "PATCH /api/user/devices/<device_id>": Request({"name": "A New Name"}),
    "GET /api/user/devices/<device_id>#other": Request(things=OF_SOMEBODY_ELSE),
    "PATCH /api/user/devices/<device_id>#other": Request({"name": "A New Name"}, things=OF_SOMEBODY_ELSE),
    "DELETE /api/user/devices/<device_id>#other": Request(things=OF_SOMEBODY_ELSE),
    "DELETE /api/user/devices/<device_id>#current": Request(
        setup_sql="update sessions set device_id = '{device_id}' where user_id = '{own_id}'"
    ),
    "GET /auth/<provider:provider>/callback": Request(query={"state": "made up", "code": "made up"}, cookies=BROWSER),
    "POST /auth/connections/<connection_id>/backchannel-logout": Request({"logout_token": "made up"}),
    "POST /auth/connections/<connection_id>/initiate": Request(form={"iss": "made up"}),
    "GET /auth/connections/<connection_id>/initiate": Request(query={"iss": "made up"}),
    "GET /auth/connections/<connection_id>/callback": Request(query={"state": "made up", "code": "made up"}, cookies=BROWSER),
    "POST /auth/connections/<connection_id>/acs": Request(form={"SAMLResponse": UNREQUESTED}, cookies=BROWSER),
    "GET /auth/connections/<connection_id>/metadata": Request(setup_sql=WITH_SAML),
    "GET /auth/connections/<connection_id>/slo": Request(query={"SAMLRequest": "made up"}, setup_sql=WITH_SAML),
    "POST /auth/connections/<connection_id>/slo": Request(form={"SAMLRequest": UNREQUESTED}, setup_sql=WITH_SAML),
    "POST /app/account/identities/<provider:provider>/link": Request(form=OF_THE_SESSION, things={"provider": "websuite"}),
    "POST /app/account/identities/<provider:provider>/unlink": Request(form=OF_THE_SESSION),
    "POST /app/account/identities/connections/<connection_id>/unlink": Request(form=OF_THE_SESSION, setup_sql=WITH_LINK),
    "DELETE /api/user/connections/<connection_id>": Request(setup_sql=WITH_LINK),
    "POST /api/user/identities/<provider>/link": Request(things={"provider": "websuite"}),  # the only provider without a link
    "GET /api/privacy/export/<user_id>#own": Request(things=ONESELF),
    "DELETE /api/privacy/forget/<user_id>#own": Request(things=ONESELF),
    "POST /api/organizations": Request({"slug": "another", "name": "Another One"}),
    f"PATCH {ORG}": Request({"name": "A New Name", "device_trust_days": 7, "personal_tokens": False, "members_see_end_users": True}),
    f"POST {ORG}/roles": Request({"slug": "reader", "name": "Reader", "capabilities": ["members.view"]}),
    f"PATCH {ORG}/roles/<role_name>": Request({"name": "Reader", "capabilities": ["members.view"]}),
    f"PATCH {ORG}/members/<user_id>": Request({"role": "admin"}),
    f"PATCH {ORG}/members/<user_id>#of-admin": Request(
        {"role": "member"}, setup_sql="update memberships set role = 'admin' where user_id = '{user_id}'"
    ),
    f"GET {ORG}/audit-log/export": Request(query={"target_type": "user"}),
    f"GET {ORG}/audit-log/<entry_id>": Request(things={"entry_id": "{audit_entry_id}"}),
    f"POST {ORG}/transfer-ownership": Request({"new_owner_user_id": "{user_id}"}),
    f"POST {ORG}/invitations": Request({"email": "newcomer@anywhere.example", "role": "member"}),
    f"POST {ORG}/invitations/bulk": Request({"invitations": [{"email": "newcomer@anywhere.example", "role": "member"}]}),
    f"POST {ORG}/invitations#admin": Request({"email": "newcomer@anywhere.example", "role": "admin"}),
    f"POST {ORG}/invitations#owner": Request({"email": "newcomer@anywhere.example", "role": "owner"}),
    f"POST {ORG}/invitations/bulk#admin": Request({"invitations": [{"email": "newcomer@anywhere.example", "role": "admin"}]}),
    f"POST {ORG}/invitations/<invitation_id>/resend#admin": Request(setup_sql=OFFERS_ADMIN),
    f"POST {ORG}/invitations/<invitation_id>/accept#admin": Request(setup_sql=OFFERS_ADMIN),
    "POST /api/invitations/accept": Request({"token": "{invitation_token}"}),
    "POST /api/invitations/decline": Request({"token": "{invitation_token}"}),
    "GET /invitations/accept": Request(query={"token": "{invitation_token}"}),
    "GET /app/invitations/accept": Request(query={"token": "{invitation_token}"}),
    "POST /app/invitations/accept": Request(form={"token": "{invitation_token}"}),
    "POST /app/invitations/decline": Request(form={"token": "{invitation_token}"}),
    f"GET {ORG}/audit-log": Request(query={"target_type": "user"}),  # prevents the question for a target
    "POST /api/auth/lookup-email": Request({"email": "{own_email}"}),
    f"POST {ORG}/services": Request({"slug": "another", "name": "Another One", "service_type": "web"}),
    f"PATCH {SERVICE}": Request({"name": "A New Name", "redirect_uris": ["https://anywhere.example/callback"]}),
    f"PUT {SERVICE}/groups/<group_id>": Request(setup_sql=WITHOUT["of service"]),
    f"PUT {SERVICE}/roles/<role_slug>/groups/<group_id>": Request(setup_sql=WITHOUT["of role"]),
    "PUT /api/service/roles/<role_slug>/groups/<group_id>": Request(setup_sql=WITHOUT["of role"]),
    f"PUT {RESOURCE}/groups/<group_id>": Request(setup_sql=WITHOUT["of resource"]),
    f"DELETE {ACCOUNT}/created-secrets": Request(setup_sql=MADE_BY_PROGRAM),
    f"POST {ACCOUNT}/end": Request(setup_sql=GOES_ON),
    f"DELETE {SERVICE}/claims": Request(setup_sql=WITH_CLAIMS),
    f"DELETE {SERVICE}/logo": Request(setup_sql=WITH_LOGO),
    f"DELETE {SERVICE}/sign-in-policy": Request(setup_sql=WITH_POLICY),
    "DELETE /api/user/picture": Request(setup_sql=WITH_PICTURE),
    "DELETE /api/platform/connections/<provider>/logo": Request(setup_sql=WITH_PROVIDER_LOGO),
    f"PUT {SERVICE}/access": Request({"policy": "members", "launch_url": "https://anywhere.example/"}),
    f"PUT {SERVICE}/authorization": Request(DOCUMENT),
    f"POST {SERVICE}/permissions": Request({"name": "another:permission"}),
    f"PATCH {SERVICE}/permissions/<permission_name>": Request({"description": "Another text"}),
    f"POST {SERVICE}/roles": Request({"slug": "another", "name": "Another One", "permissions": ["{permission_name}"]}),
    f"PATCH {SERVICE}/roles/<role_slug>": Request({"name": "Another One", "permissions": []}),
    f"DELETE {SERVICE}/roles/<role_slug>": Request(query={"confirm": "true"}),
    f"POST {SERVICE}/roles/<role_slug>/users": Request({"email": "{own_email}"}),
    f"GET {SERVICE}/roles/<role_slug>/users/<user_id>": Request(things={"user_id": "{end_user_id}"}),
    f"DELETE {SERVICE}/roles/<role_slug>/users/<user_id>": Request(things={"user_id": "{end_user_id}"}),
    f"GET {ORG}/users/<user_id>/roles": Request(things={"user_id": "{end_user_id}"}),
    f"GET {ORG}/users/<user_id>/access": Request(things={"user_id": "{end_user_id}"}),
    f"POST {SERVICE}/assignments": Request({"email": "{own_email}"}),
    f"POST {ORG}/groups": Request({"name": "Another", "description": "Another one"}),
    f"PATCH {ORG}/groups/<group_id>": Request({"name": "A New Name"}),
    f"PATCH {ORG}/groups/<group_id>/attributes": Request({"values": {"team": "A New Value"}}),
    f"PUT {ORG}/groups/<group_id>/role": Request({"role": "{role_name}"}),
    f"DELETE {ORG}/groups/<group_id>/role": Request(things={"group_id": "{mapped_group_id}"}),
    f"POST {ORG}/groups/<group_id>/members": Request({"email": "{own_email}"}),
    f"DELETE {ORG}/groups/<group_id>/members/<user_id>": Request(things={"user_id": "{end_user_id}"}),
    f"PATCH {ORG}/scim-tokens/<token_id>": Request({"directory_groups": True}),
    f"DELETE {SERVICE}/assignments/<user_id>": Request(
        things={"user_id": "{end_user_id}"},
        setup_sql="update service_users set enrolled_by = 'admin' where user_id = '{end_user_id}'",
    ),
    f"POST {ORG}/api-resources": Request(
        {"identifier": "https://new.{org_slug}.example/", "name": "Another One", "scopes": [{"name": "a", "description": "Does a."}]}
    ),
    f"PATCH {RESOURCE}": Request({"name": "A New Name", "scopes": [{"name": "a", "description": "Does a."}]}),
    f"PUT {RESOURCE}/access": Request({"policy": "members"}),
    f"PUT {RESOURCE}/external-clients": Request({"admit": "listed", "hosts": ["claude.ai"], "access": "members"}),
    f"DELETE {RESOURCE}/external-clients/grants/<user_id>/<client_id>": Request(things=OF_EXTERNAL_CLIENT),
    f"POST {RESOURCE}/assignments": Request({"email": "{own_email}"}),
    f"DELETE {RESOURCE}/assignments/<user_id>": Request(things={"user_id": "{end_user_id}"}),
    f"PUT {RESOURCE}/clients/<client_id>": Request({"scopes": []}),
    "POST /api/platform/service-accounts": Request({"name": "Another Robot"}),
    **{f"{way} {PLATFORM_ACCOUNT}": Request(things=THEIR_ACCOUNT) for way in ("GET", "DELETE")},
    f"PATCH {PLATFORM_ACCOUNT}": Request({"name": "A New Name", "scopes": ["platform_users:read"]}, things=THEIR_ACCOUNT),
    f"GET {PLATFORM_ACCOUNT}/credentials": Request(things=THEIR_ACCOUNT),
    f"POST {PLATFORM_ACCOUNT}/credentials": Request({"kind": "secret", "name": "Spare"}, things=THEIR_ACCOUNT),
    f"DELETE {PLATFORM_ACCOUNT}/credentials/<credential_id>": Request(things=THEIR_ACCOUNT),
    f"POST {RESOURCE}/credentials": Request({"kind": "secret", "name": "Spare"}),
    f"DELETE {RESOURCE}/credentials/<credential_id>": Request(things={"credential_id": "{resource_credential_id}"}),
    f"POST {ORG}/service-accounts": Request({"name": "Another Robot", "role": "member"}),
    f"POST {ORG}/service-accounts#admin": Request({"name": "Another Robot", "role": "admin"}),
    f"POST {ORG}/service-accounts#owner": Request({"name": "Another Robot", "role": "owner"}),
    f"POST {ORG}/service-accounts#granted": Request({"name": "Another Robot", "role": "admin", "granted_capabilities": ["members.manage"]}),
    f"PATCH {ACCOUNT}": Request({"name": "A New Name", "scopes": ["members:read"]}),
    f"PUT {ACCOUNT}/api-resources/<resource_id>": Request({"scopes": ["{org_slug}:orders"]}, setup_sql=WITHOUT["of account"]),
    f"POST {ACCOUNT}/credentials": Request({"kind": "secret", "name": "Spare"}),
    f"POST {SERVICE}/plans": Request({"name": "Another", **PLAN}),
    f"PATCH {SERVICE}/plans/<plan_id>": Request({"name": "A New Name", **PLAN}),
    f"POST {SERVICE}/checkout": Request(
        {"plan_id": "{plan_id}", "success_url": "https://anywhere.example/thanks", "cancel_url": "https://anywhere.example/"}
    ),
    f"POST {SERVICE}/api-keys": Request({"name": "Another", "permissions": ["read:users"]}),
    f"PUT {SERVICE}/oauth-credentials/<provider>": Request({"client_id": "another", "client_secret": "and its secret"}),
    f"POST {SERVICE}/saml": Request({"enabled": True, "entity_id": "https://anywhere.example", "acs_url": "https://anywhere.example/acs"}),
    f"GET {SERVICE}/saml/certificate/next": Request(setup_sql=NEXT_CERTIFICATE),
    f"DELETE {SERVICE}/saml/certificate/next": Request(setup_sql=NEXT_CERTIFICATE),
    f"POST {SERVICE}/saml/certificate/activate": Request(setup_sql=NEXT_CERTIFICATE),
    f"POST {SERVICE}/saml/certificate/undo": Request(setup_sql=PREVIOUS_CERTIFICATE),
    f"POST {SERVICE}/saml/metadata": Request({"metadata": service_provider_metadata()}),
    "POST /saml/<org_slug>/<service_slug>/sso": Request(form={"SAMLRequest": "made up"}),
    "GET /saml/<org_slug>/<service_slug>/authenticate": Request(query={"saml_state": "{saml_state}"}),  # in another browser
    "POST /saml/<org_slug>/<service_slug>/slo": Request(form={"SAMLRequest": "made up"}),
    f"DELETE {ORG}/directory-blocks/<user_id>": Request(
        setup_sql="""
            insert into directory_blocks select id, '{user_id}', created_at from organizations where slug = '{org_slug}'
            on conflict do nothing"""
    ),
    f"GET {ORG}/users/<user_id>": Request(things={"user_id": "{end_user_id}"}),
    f"DELETE {ORG}/users/<user_id>/sessions": Request(things={"user_id": "{end_user_id}"}),
    f"POST {ORG}/users/<user_id>/password-reset": Request(things={"user_id": "{end_user_id}"}),
    f"PUT {ORG}/users/<user_id>/block": Request(things={"user_id": "{end_user_id}"}),
    f"DELETE {ORG}/users/<user_id>/block": Request(things={"user_id": "{end_user_id}"}, setup_sql=BLOCKED),
    f"DELETE {ORG}/users/<user_id>/mfa": Request(things={"user_id": "{end_user_id}"}, setup_sql=MADE_BY_ORGANIZATION),
    f"POST {ORG}/users/<user_id>/recovery": Request(LOST, things=END_USER, setup_sql=MADE_BY_ORGANIZATION),
    f"DELETE {ORG}/users/<user_id>/recovery": Request(things=END_USER, setup_sql=RECOVERED_BY_ORGANIZATION),
    f"POST {ORG}/members/<user_id>/recovery": Request(LOST, setup_sql=MEMBER_MADE_BY_ORGANIZATION),
    f"DELETE {ORG}/members/<user_id>/recovery": Request(setup_sql=MEMBER_RECOVERED_BY_ORGANIZATION),
    f"POST {ORG}/siem": Request({"provider": "http", "endpoint_url": "https://siem.anywhere.example/collect", "token": "a-token"}),
    f"POST {ORG}/webhooks": Request({"name": "Another", "url": "https://hooks.anywhere.example/in", "events": ["user.invited"]}),
    f"POST {ORG}/webhooks/<webhook_id>/deliveries/resend-failed": Request({}),
    f"PATCH {ORG}/webhooks/<webhook_id>": Request({"name": "A New Name", "events": ["user.invited"]}),
    f"POST {ORG}/scim-tokens": Request({"name": "Another"}),
    f"POST {ORG}/connections": Request(
        {"slug": "another", "name": "Another", "oidc": {"issuer": "https://another.example", "client_id": "another"}}
    ),
    f"PATCH {ORG}/connections/<connection_slug>": Request({"name": "A New Name"}),
    f"POST {ORG}/connections/<connection_slug>/groups": Request({"value": "staff", "group_id": "{group_id}"}),
    f"DELETE {ORG}/connections/<connection_slug>/groups/<mapping_id>": Request(**WITH_MAPPING),
    f"DELETE {ORG}/connections/<connection_slug>/people/<user_id>": Request(things={"user_id": "{end_user_id}"}),
    f"POST {ORG}/connections/<connection_slug>/metadata": Request({"metadata": identity_provider_metadata()}, setup_sql=WITH_SAML),
    f"POST {ORG}/connections/<connection_slug>/activate": Request(setup_sql=INACTIVE),
    f"PUT {ORG}/connections/<connection_slug>/client-secret": Request({"client_secret": "a new secret"}),
    f"POST {ORG}/connections/<connection_slug>/keys": Request(
        setup_sql="delete from connection_keys where org_id = '{org_id}' and state = 'next'"
    ),
    f"POST {ORG}/connections/<connection_slug>/certificates": Request({"certificate": "{another_certificate}"}),
    f"POST {ORG}/setup-links": Request({"name": "Globex", "kind": "mailed", "parts": ["domain"], "recipient": "it@globex.example"}),
    "GET /setup": Request(query={"token": "{setup_token}"}),
    "POST /setup": Request(form={**OF_THIS_BROWSER, "token": "{setup_token}"}, cookies=BROWSER),
    "POST /setup/code": Request(form={**OF_THIS_BROWSER, "token": "{setup_token}", "code": "123456"}, cookies=BROWSER),
    "POST /setup/steps/connection": Request(form={"form_token": "{setup_form_token}", "preset": "okta", "protocol": "oidc"}),
    "POST /setup/steps/connection/values": Request(
        form={"form_token": "{setup_form_token}", "issuer": "https://192.0.2.1", "client_id": "gatehouse", "client_secret": "hushed"}
    ),
    "POST /setup/steps/siem": Request(
        form={"form_token": "{setup_form_token}", "provider": "http", "endpoint_url": "https://192.0.2.1/siem", "token": "hushed"}
    ),
    "POST /setup/steps/domain": Request(form={"form_token": "{setup_form_token}", "domain": "globex.example"}),
    **{
        f"POST /setup/steps/{step}": Request(form={"form_token": "{setup_form_token}"})
        for step in ("connection/check", "connection/key", "connection/metadata", "domain/check", "domain/remove", "directory", "finish")
    },
    **{f"POST /setup/steps/{step}": Request(form={"form_token": "{setup_form_token}"}) for step in ("certificate", "certificate/metadata")},
    f"POST {ORG}/registration-tokens": Request({"name": "Another"}),
    "POST /auth/register": Request(
        {"client_name": "Another", "redirect_uris": ["https://anywhere.example/callback"]},
        headers={"Authorization": "Bearer {registration_token}"},
    ),
    "POST /scim/v2/Users": Request({"schemas": [USER_URN], "userName": "newcomer@anywhere.example", "displayName": "A New Name"}),
    "PUT /scim/v2/Users/<user_id>": Request({"schemas": [USER_URN], "userName": "{own_email}", "displayName": "A New Name"}),
    "PATCH /scim/v2/Users/<user_id>": Request(
        {"schemas": [PATCH_URN], "Operations": [{"op": "replace", "path": "displayName", "value": "A New Name"}]}
    ),
    "POST /scim/v2/Groups": Request({"schemas": [GROUP_URN], "displayName": "Another"}),
    "GET /scim/v2/Groups/<group_id>": Request(things={"group_id": "{org_id}"}),
    "PUT /scim/v2/Groups/<group_id>": Request(
        {"schemas": [GROUP_URN], "displayName": "A New Name", "members": [{"value": "{user_id}"}]}, things={"group_id": "{org_id}"}
    ),
    "PATCH /scim/v2/Groups/<group_id>": Request(
        {"schemas": [PATCH_URN], "Operations": [{"op": "remove", "path": "members", "value": [{"value": "{user_id}"}]}]},
        things={"group_id": "{org_id}"},
    ),
    "DELETE /scim/v2/Groups/<group_id>": Request(things={"group_id": "{org_id}"}),
    "GET /scim/v2/Groups/<group_id>#pushed": Request(things={"group_id": "{pushed_group_id}"}),
    "PUT /scim/v2/Groups/<group_id>#pushed": Request(
        {"schemas": [GROUP_URN], "displayName": "A New Name", "members": [{"value": "{user_id}"}]}, things={"group_id": "{pushed_group_id}"}
    ),
    "PATCH /scim/v2/Groups/<group_id>#pushed": Request(
        {"schemas": [PATCH_URN], "Operations": [{"op": "remove", "path": "members", "value": [{"value": "{user_id}"}]}]},
        things={"group_id": "{pushed_group_id}"},
    ),
    "DELETE /scim/v2/Groups/<group_id>#pushed": Request(things={"group_id": "{pushed_group_id}"}),
    "GET /scim/v2/ResourceTypes/<resource_type>": Request(things={"resource_type": "User"}),
    "GET /scim/v2/Schemas/<schema_id>": Request(things={"schema_id": USER_URN}),
    f"POST {ORG}/smtp": Request({"host": "mail.anywhere.example", "from_email": "post@anywhere.example"}),
    f"PUT {ORG}/sign-in-policy": Request({"session_lifetime_minutes": 720, "version": 0}),
    f"PUT {ORG}/sign-in-policy/break-glass": Request({"user_ids": []}, setup_sql=WITH_BREAK_GLASS),
    f"DELETE {ORG}/sign-in-policy/imposed-rules": Request(setup_sql=WITH_IMPOSED_RULE),
    f"POST {ORG}/sign-in-policy/preview": Request({"session_lifetime_minutes": 720}),
    f"PUT {SERVICE}/sign-in-policy": Request({"session_lifetime_minutes": 720, "version": 0}),
    f"POST {SERVICE}/sign-in-policy/preview": Request({"session_lifetime_minutes": 720}),
    "PUT /api/platform/sign-in-policy": Request({"second_factor": ["everyone"], "grace_days": 7, "session_idle_minutes": 60, "version": 0}),
    "POST /api/platform/sign-in-policy/preview": Request({"second_factor": ["everyone"], "grace_days": 7}),
    f"PUT {SERVICE}/claims": Request({"fixed": {"tenant": "x"}, "version": 0}),
    f"POST {SERVICE}/claims/preview": Request({"fixed": {"tenant": "x"}}),
    f"POST {ORG}/attributes": Request({"name": "new_one", "label": "A New One", "kind": "text"}),
    f"DELETE {ORG}/attributes/<attribute_name>": Request(setup_sql="delete from service_claims where org_id = '{org_id}'"),
    f"PATCH {ORG}/attributes/<attribute_name>": Request({"label": "A New Label", "writers": ["admin"]}),
    f"PATCH {ORG}/members/<user_id>/attributes": Request({"values": {"team": "A New Value"}}),
    f"GET {ORG}/users/<user_id>/attributes": Request(things={"user_id": "{end_user_id}"}),
    f"PATCH {ORG}/users/<user_id>/attributes": Request({"values": {"team": "New"}}, things={"user_id": "{end_user_id}"}),
    "PATCH /api/user/attributes": Request({"organization": "{org_slug}", "values": {"team": "A New Value"}}),
    "GET /api/service/users/<user_id>/attributes": Request(things={"user_id": "{end_user_id}"}),
    "PATCH /api/service/users/<user_id>/attributes": Request({"values": {"team": "A New Value"}}, things={"user_id": "{end_user_id}"}),
    f"PATCH {ORG}/branding": Request(
        {"product_name": "A New Name", "primary_color": "#123456", "logo_url": "https://anywhere.example/logo.png"}
    ),
    f"POST {ORG}/domains": Request({"domain": "anywhere.example"}),
    f"POST {ORG}/domains/<domain>/verify": Request(setup_sql="update domains set verified_at = null where org_id = '{org_id}'"),
    f"PUT {ORG}/hrd/<domain>": Request({"provider": "websuite"}),
    f"PUT {ORG}/hrd": Request({"domains": [{"domain": "anywhere.example", "provider": "websuite"}]}),
    "PATCH /api/service/info": Request({"name": "A New Name", "redirect_uris": ["https://anywhere.example/callback"]}),
    "POST /api/service/users": Request({"email": "newcomer@anywhere.example"}),
    "GET /api/service/users/<user_id>": Request(things={"user_id": "{end_user_id}"}),
    "PATCH /api/service/users/<user_id>": Request({"email": "moved@anywhere.example"}, things={"user_id": "{end_user_id}"}),
    "DELETE /api/service/users/<user_id>": Request(things={"user_id": "{end_user_id}"}),
    "PUT /api/service/authorization": Request(DOCUMENT, query={"confirm": "true"}),
    **{f"POST {path}": Request(QUESTION) for path in ("/access/v1/evaluation", "/access/v1/evaluations")},
    "GET /api/service/users/<user_id>/roles": Request(things={"user_id": "{end_user_id}"}),
    **{
        f"{method} /api/service/roles/<role_slug>/users/<user_id>": Request(things=END_USER, setup_sql=setup)
        for method, setup in (("PUT", WITHOUT["users"]), ("DELETE", ""))
    },
    "POST /api/service/subscriptions": Request({"user_id": "{user_id}", "plan_id": "{plan_id}"}),
    "GET /api/service/subscriptions/<user_id>": Request(things={"user_id": "{end_user_id}"}),
    "PATCH /api/service/subscriptions/<user_id>": Request({"status": "past_due"}, things={"user_id": "{end_user_id}"}),
    "DELETE /api/service/subscriptions/<user_id>": Request(things={"user_id": "{end_user_id}"}),
    "POST /api/platform/organizations/<org_id>/approve": Request(
        {}, setup_sql="update organizations set status = 'pending' where id = '{org_id}'"
    ),
    "POST /api/platform/organizations/<org_id>/reject": Request(
        {"reason": "not a company"}, setup_sql="update organizations set status = 'pending' where id = '{org_id}'"
    ),
    "POST /api/platform/organizations/<org_id>/suspend": Request({}),
    "POST /api/platform/organizations/<org_id>/activate": Request(
        {}, setup_sql="update organizations set status = 'suspended' where id = '{org_id}'"
    ),
    "DELETE /api/platform/organizations/<org_id>/admin-networks": Request({"reason": "a new office"}, setup_sql=WITH_NETWORKS),
    "PATCH /api/platform/organizations/<org_id>/tier": Request({"tier_id": "{tier_id}", "max_users": 7, "max_services": 7}),
    "DELETE /api/platform/users/<user_id>/mfa": Request({"reason": "a lost telephone"}, things={"user_id": "{guarded_id}"}),
    "POST /api/platform/users/<user_id>/recovery": Request(LOST, things=GUARDED),
    "DELETE /api/platform/users/<user_id>/recovery": Request(things=GUARDED),
    "GET /api/platform/users/<user_id>": Request(things={"user_id": "{guarded_id}"}),
    "POST /api/platform/users/<user_id>/end-sessions": Request({"reason": "a lost laptop"}, things={"user_id": "{guarded_id}"}),
    "POST /api/platform/users/<user_id>/password-reset": Request({"reason": "a lost password"}, things={"user_id": "{guarded_id}"}),
    "POST /api/platform/users/<user_id>/deactivate": Request({"reason": "a stolen account"}, things={"user_id": "{guarded_id}"}),
    "POST /api/platform/users/<user_id>/reactivate": Request({"reason": "the owner has it again"}, things=GUARDED, setup_sql=DEACTIVATED),
    "GET /api/platform/users/<user_id>/mfa/status": Request(things={"user_id": "{guarded_id}"}),
    "GET /api/platform/audit-log": Request(query={"target_type": "user"}),  # prevents the question for a target
    "GET /api/platform/audit-log/export": Request(query={"target_type": "user"}),
    "POST /api/platform/impersonate/<user_id>": Request({"reason": "asked for help", "org_slug": "{org_slug}"}),
    "POST /api/platform/owners": Request({"user_id": "{user_id}"}, setup_sql=WITH_SECOND_FACTOR),
    "DELETE /api/platform/owners/<user_id>": Request(setup_sql="update users set is_platform_owner = true where id = '{user_id}'"),
    "GET /auth/recover-owner": Request(query={"token": "{recovery_token}"}),
    "POST /auth/recover-owner": Request(form={**OF_THIS_BROWSER, "token": "{recovery_token}"}, cookies=BROWSER),
    "POST /auth/recover": Request(form={**OF_THIS_BROWSER, "token": "made up", "code": "ABCDE-ABCDE"}, cookies=BROWSER),
    "POST /auth/recover/<recovery_id>/app": Request(form={**OF_THIS_BROWSER, "code": "{code}"}, cookies=BROWSER),
    "POST /auth/recover/<recovery_id>/passkey": Request(form={**OF_THIS_BROWSER, "credential": as_text(NEW_CREDENTIAL)}, cookies=BROWSER),
    "POST /app/sign-in": Request(form={**OF_THIS_BROWSER, "email": "{own_email}", "password": "{password}"}, cookies=BROWSER),
    "GET /app/flow/<flow_id>": Request(**IN_FLOW),
    "GET /app/flow/<flow_id>/sign-in": Request(**IN_FLOW),
    "POST /app/flow/<flow_id>/sign-in": Request(form={**OF_THIS_BROWSER, "email": "{own_email}", "password": "{password}"}, **IN_FLOW),
    "GET /app/flow/<flow_id>/link": Request(**IN_FLOW),
    "POST /app/flow/<flow_id>/link": Request(form={**OF_THIS_BROWSER, "answer": "continue"}, **IN_FLOW),
    "POST /app/flow/<flow_id>/switch": Request(form={**OF_THE_SESSION, "start": "/auth/codehost"}, **IN_FLOW),
    "GET /app/flow/<flow_id>/code": Request(**WITH_CODE),
    "POST /app/flow/<flow_id>/code": Request(form={**OF_THIS_BROWSER, "code": "{guarded_code}"}, **WITH_CODE),
    "POST /app/flow/<flow_id>/sign-in/email": Request(form={**OF_THIS_BROWSER, "email": "{own_email}"}, **IN_FLOW),
    "GET /app/flow/<flow_id>/forgot-password": Request(**IN_FLOW),
    "POST /app/flow/<flow_id>/forgot-password": Request(form={**OF_THIS_BROWSER, "email": "{own_email}"}, **IN_FLOW),
    "GET /app/flow/<flow_id>/sign-up": Request(**IN_FLOW),
    "POST /app/flow/<flow_id>/sign-up": Request(
        form={**OF_THIS_BROWSER, "email": "new@anywhere.example", "password": "{password}"}, **IN_FLOW
    ),
    "GET /app/flow/<flow_id>/resend-verification": Request(**IN_FLOW),
    "POST /app/flow/<flow_id>/resend-verification": Request(form={**OF_THIS_BROWSER, "email": "{own_email}"}, **IN_FLOW),
    **{f"GET /app/flow/<flow_id>/{step}": Request(**IN_FLOW) for step in ("confirm", "consent", "select")},
    **{f"POST /app/flow/<flow_id>/{step}": AGREES for step in ("confirm", "consent", "select")},
    "POST /api/auth/email-sign-in": Request({"email": "{own_email}"}),
    "POST /api/auth/email-sign-in/verify": Request({"request_token": "{email_request_token}", "code": "{email_code}"}),
    "GET /auth/email-sign-in": Request(query={"token": "{email_link}"}),
    "POST /auth/email-sign-in": Request(form={**OF_THIS_BROWSER, "token": "{email_link}"}, cookies=BROWSER),
    "POST /app/sign-in/passkey": Request(form=OF_THIS_BROWSER, cookies=BROWSER),
    "POST /app/flow/<flow_id>/sign-in/passkey": Request(form=OF_THIS_BROWSER, **IN_FLOW),
    "POST /app/sign-in/email": Request(form={**OF_THIS_BROWSER, "email": "{own_email}"}, cookies=BROWSER),
    "GET /app/flow/<flow_id>/email": Request(things={"flow_id": "{email_flow}"}, cookies=BROWSER),
    "POST /app/flow/<flow_id>/email": Request(
        form={**OF_THIS_BROWSER, "code": "{email_code}"}, things={"flow_id": "{email_flow}"}, cookies=BROWSER
    ),
    "POST /app/sign-out": Request(form=OF_THE_SESSION),
    "POST /app/forgot-password": Request(form={**OF_THIS_BROWSER, "email": "{own_email}"}, cookies=BROWSER),
    "POST /app/sign-up": Request(form={**OF_THIS_BROWSER, "email": "new@anywhere.example", "password": "{password}"}, cookies=BROWSER),
    "POST /app/resend-verification": Request(form={**OF_THIS_BROWSER, "email": "{own_email}"}, cookies=BROWSER),
    "POST /app/account/export": Request(form=OF_THE_SESSION),
    "PUT /api/user/picture": Request(file=PICTURE),
    "POST /app/account/profile/picture": Request(form=OF_THE_SESSION, file=PICTURE),
    "POST /app/account/profile/picture/remove": Request(form=OF_THE_SESSION, setup_sql=WITH_PICTURE),
    f"PUT {ORG}/branding/logo": Request(file=PICTURE),
    f"POST {PAGES_OF_ORG}/branding/logo": Request(form=OF_THE_SESSION, file=PICTURE),
    f"POST {PAGES_OF_ORG}/branding/logo/remove": Request(form=OF_THE_SESSION),
    f"PUT {SERVICE}/logo": Request(file=PICTURE),
    f"POST {APP_PAGES}/logo": Request(form=OF_THE_SESSION, file=PICTURE),
    f"POST {APP_PAGES}/logo/remove": Request(form=OF_THE_SESSION, setup_sql=WITH_LOGO),
    "PUT /api/platform/connections/<provider>/logo": Request(file=PICTURE),
    "POST /app/platform/connections/<provider>/logo": Request(form=OF_THE_SESSION, file=PICTURE),
    "POST /app/platform/connections/<provider>/logo/remove": Request(form=OF_THE_SESSION, setup_sql=WITH_PROVIDER_LOGO),
    "GET /images/<image_key>/<size>": Request(things={"image_key": "unknown", "size": "64"}),
    "POST /app/account/profile": Request(form={**OF_THE_SESSION, "name": "A New Name"}),
    "POST /app/account/subscriptions/<subscription_id>/cancel": Request(form=OF_THE_SESSION),
    "POST /app/account/delete": Request(form={**OF_THE_SESSION, "email": "{own_email}"}),
    "POST /app/account/email": Request(form={**OF_THE_SESSION, "email": "moved@anywhere.example"}),
    "POST /app/account/email/verification": Request(form=OF_THE_SESSION),
    "POST /app/account/email/cancel": Request(form=OF_THE_SESSION, setup_sql=WITH_EMAIL_CHANGE),
    "POST /app/account/password": Request(
        form={**OF_THE_SESSION, "current_password": "{password}", "new_password": "another good password"}
    ),
    "POST /app/account/password/remove": Request(form=OF_THE_SESSION, setup_sql=WITH_PASSKEY),
    "POST /app/passkey": Request(form={**OF_THE_SESSION, "credential": as_text(NEW_CREDENTIAL)}),
    "POST /app/account/passkeys": Request(
        form={**OF_THE_SESSION, "credential": as_text(NEW_CREDENTIAL)},
        # The refusal's page begins a new ceremony, and the first ceremony stores the account's handle.
        setup_sql="update users set passkey_handle = decode(repeat(md5(id::text), 4), 'hex') where passkey_handle is null",
    ),
    "GET /app/account/passkeys/<passkey_id>#other": Request(things=PASSKEY_OF_ANOTHER),
    "POST /app/account/passkeys/<passkey_id>/name": Request(form={**OF_THE_SESSION, "name": "A New Name"}),
    "POST /app/account/passkeys/<passkey_id>/delete": Request(form=OF_THE_SESSION),
    "POST /app/account/passkeys/lost": Request(form=OF_THE_SESSION, setup_sql=WITH_MAILBOX),
    "POST /app/account/passkeys/lost/cancel": Request(form=OF_THE_SESSION),
    "POST /app/account/passkeys/lost/remove": Request(form=OF_THE_SESSION, setup_sql=AFTER_WAIT),
    "POST /app/account/passkeys/second-factor": Request(form={**OF_THE_SESSION, "enabled": "no"}),
    "POST /app/account/two-factor/setup": Request(form=OF_THE_SESSION),
    "POST /app/account/two-factor/confirm": Request(form={**OF_THE_SESSION, "code": "{code}"}),
    "POST /app/account/two-factor/backup-codes": Request(form=OF_THE_SESSION, setup_sql=HAS_MFA),
    "POST /app/account/two-factor/disable": Request(form=OF_THE_SESSION, setup_sql=HAS_MFA),
    "GET /app/account/devices/<device_id>#other": Request(things=OF_SOMEBODY_ELSE),
    "POST /app/account/devices/<device_id>/name": Request(form={**OF_THE_SESSION, "name": "A New Name"}),
    "POST /app/account/devices/<device_id>/revoke": Request(form=OF_THE_SESSION),
    "POST /app/account/devices/<device_id>/revoke#other": Request(form=OF_THE_SESSION, things=OF_SOMEBODY_ELSE),
    "GET /app/account/consents/<service_id>": Request(setup_sql=HAS_CONSENT),
    "POST /app/account/consents/<service_id>/withdraw": Request(form=OF_THE_SESSION, setup_sql=HAS_CONSENT),
    "POST /app/account/personal-tokens/new": Request(
        form={**OF_THE_SESSION, "name": "Export", "scope:account:read": "yes", "expires_in_days": "30"}
    ),
    "POST /app/account/personal-tokens/<personal_token_id>/revoke": Request(form=OF_THE_SESSION),
    f"POST {PAGES_OF_ORG}/personal-tokens/<personal_token_id>/revoke": Request(
        form=OF_THE_SESSION, things={"personal_token_id": "{organization_token_id}"}
    ),
    "POST /app/account/organizations/<org_slug>/confirm": Request(form=OF_THE_SESSION, setup_sql=UNCONFIRMED),
    "POST /app/account/organizations/<org_slug>/leave": Request(form=OF_THE_SESSION),
    "POST /app/organizations/<org_slug>/applications/<service_slug>": Request(
        form={**OF_THE_SESSION, "group": "sign-in", "redirect_uris": "https://shop.example/new", "post_logout_redirect_uris": ""}
    ),
    "POST /app/organizations/<org_slug>/applications/<service_slug>/secret": Request(
        form={**OF_THE_SESSION, "ends_former": "yes", "overlap": "1 day"}
    ),
    f"GET {PAGES_OF_ORG}/audit-log": Request(query={"target_type": "user"}),  # prevents the question for a target
    f"GET {PAGES_OF_ORG}/audit-log/export": Request(query={"target_type": "user"}),
    f"GET {PAGES_OF_ORG}/audit-log/<entry_id>": Request(things={"entry_id": "{audit_entry_id}"}),
    "GET /app/platform/log": Request(query={"target_type": "user"}),
    "GET /app/platform/log/export": Request(query={"target_type": "user"}),
    f"POST {PAGES_OF_ORG}/connections/new": Request(form={**OF_THE_SESSION, "name": "Another", "slug": "another", "protocol": "oidc"}),
    f"POST {PAGES_OF_ORG}/connections/<connection_slug>": Request(
        form={**OF_THE_SESSION, "name": "Another", "issuer": "https://192.0.2.1/{org_slug}", "client_id": "another"}
    ),
    f"POST {PAGES_OF_ORG}/connections/<connection_slug>/groups": Request(
        form={**OF_THE_SESSION, "value": "staff", "group_id": "{group_id}"}
    ),
    f"POST {PAGES_OF_ORG}/connections/<connection_slug>/groups/<mapping_id>/remove": Request(form=OF_THE_SESSION, **WITH_MAPPING),
    f"POST {PAGES_OF_ORG}/connections/<connection_slug>/people/<user_id>/unlink": Request(
        form=OF_THE_SESSION, things={"user_id": "{end_user_id}"}
    ),
    f"POST {PAGES_OF_ORG}/connections/<connection_slug>/metadata": Request(
        form={**OF_THE_SESSION, "metadata": identity_provider_metadata()}, setup_sql=WITH_SAML
    ),
    f"POST {PAGES_OF_ORG}/connections/<connection_slug>/activate": Request(form=OF_THE_SESSION, setup_sql=INACTIVE),
    f"POST {PAGES_OF_ORG}/connections/<connection_slug>/deactivate": Request(form=OF_THE_SESSION),
    f"POST {PAGES_OF_ORG}/connections/<connection_slug>/remove": Request(form={**OF_THE_SESSION, "confirmation": "{org_slug} Okta"}),
    f"POST {PAGES_OF_ORG}/connections/<connection_slug>/keys/client-secret": Request(
        form={**OF_THE_SESSION, "client_secret": "a new secret"}
    ),
    f"POST {PAGES_OF_ORG}/connections/<connection_slug>/keys": Request(
        form=OF_THE_SESSION, setup_sql="delete from connection_keys where org_id = '{org_id}' and state = 'next'"
    ),
    f"POST {PAGES_OF_ORG}/connections/<connection_slug>/keys/activate": Request(form=OF_THE_SESSION),
    f"POST {PAGES_OF_ORG}/connections/<connection_slug>/keys/certificates": Request(
        form={**OF_THE_SESSION, "certificate": "{another_certificate}"}
    ),
    f"POST {PAGES_OF_ORG}/connections/<connection_slug>/keys/certificates/<fingerprint>/remove": Request(form=OF_THE_SESSION),
    f"POST {PAGES_OF_ORG}/connections/<connection_slug>/mapping": Request(form={**OF_THE_SESSION, "claim_email": "mail"}),
    f"POST {PAGES_OF_ORG}/connections/<connection_slug>/test": Request(form=OF_THE_SESSION),
    f"GET {PAGES_OF_ORG}/connections/<connection_slug>/test/provider": Request(
        query={"test": "{own_id}"}, cookies=BROWSER, setup_sql=WITH_TEST
    ),
    f"POST {PAGES_OF_ORG}/connections/<connection_slug>/test/provider": Request(
        form={**OF_THE_SESSION, "test": "{own_id}", "subject": "4711"}, cookies=BROWSER, setup_sql=WITH_TEST
    ),
    f"POST {PAGES_OF_ORG}/domains": Request(form={**OF_THE_SESSION, "domain": "anywhere.example"}),
    f"POST {PAGES_OF_ORG}/domains/<domain>/verify": Request(
        form=OF_THE_SESSION, setup_sql="update domains set verified_at = null where org_id = '{org_id}'"
    ),
    f"POST {PAGES_OF_ORG}/domains/routes": Request(form={**OF_THE_SESSION, "domain": "anywhere.example", "provider": "websuite"}),
    f"POST {PAGES_OF_ORG}/domains/routes/<domain>/remove": Request(form=OF_THE_SESSION),
    f"POST {PAGES_OF_ORG}/domains/<domain>/remove": Request(form={**OF_THE_SESSION, "confirmation": "{org_slug}.example"}),
    "POST /app/organizations/new": Request(form={**OF_THE_SESSION, "name": "Another One"}),
    f"POST {PAGES_OF_ORG}/settings": Request(form={**OF_THE_SESSION, "name": "A New Name", "device_trust_days": "7"}),
    f"POST {PAGES_OF_ORG}/settings/transfer": Request(form={**WITH_REASON, "new_owner_user_id": "{user_id}", "confirmation": "{org_name}"}),
    f"POST {PAGES_OF_ORG}/settings/delete": Request(form={**OF_THE_SESSION, "confirmation": "{org_name}"}),
    f"POST {PAGES_OF_ORG}/branding": Request(form={**OF_THE_SESSION, "product_name": "A New Name"}),
    f"POST {PAGES_OF_ORG}/branding/preview": Request(form={**OF_THE_SESSION, "product_name": "A New Name"}),
    f"POST {PAGES_OF_ORG}/setup-links": Request(
        form={**OF_THE_SESSION, "name": "Globex", "kind": "mailed", "part:domain": "yes", "recipient": "it@globex.example", "days": "7"}
    ),
    f"POST {PAGES_OF_ORG}/setup-links/<setup_link_id>/end": Request(form=OF_THE_SESSION),
    f"POST {PAGES_OF_ORG}/setup-links/<setup_link_id>/parts/<setup_part>/apply": Request(form=OF_THE_SESSION),
    f"POST {PAGES_OF_ORG}/registration-tokens": Request(form={**OF_THE_SESSION, "name": "Another", "uses": "2"}),
    f"POST {PAGES_OF_ORG}/registration-tokens/<registration_token_id>/delete": Request(form=OF_THE_SESSION),
    f"POST {PAGES_OF_ORG}/directory": Request(form={**OF_THE_SESSION, "name": "Another"}),
    f"POST {PAGES_OF_ORG}/directory/tokens/<token_id>/revoke": Request(form=OF_THE_SESSION),
    f"POST {PAGES_OF_ORG}/directory/blocks/<user_id>/remove": Request(
        form=OF_THE_SESSION,
        setup_sql="""
            insert into directory_blocks select id, '{user_id}', created_at from organizations where slug = '{org_slug}'
            on conflict do nothing""",
    ),
    f"GET {APP_PAGES}/settings/<group>": Request(things={"group": "security"}),
    f"POST {APP_PAGES}/saml": Request(
        form={
            **OF_THE_SESSION,
            "enabled": "yes",
            "sign_response": "yes",
            "entity_id": "https://anywhere.example",
            "acs_url": "https://anywhere.example/acs",
        }
    ),
    f"POST {PAGES_OF_ORG}/attributes": Request(form={**OF_THE_SESSION, "name": "new_one", "label": "A New One", "kind": "text"}),
    f"POST {PAGES_OF_ORG}/attributes/<attribute_name>": Request(form={**OF_THE_SESSION, "label": "A New Label", "position": "2"}),
    f"POST {PAGES_OF_ORG}/attributes/<attribute_name>/delete": Request(
        form={**OF_THE_SESSION, "confirmation": "{attribute_name}"}, setup_sql="delete from service_claims where org_id = '{org_id}'"
    ),
    f"POST {PAGES_OF_ORG}/members/<user_id>/attributes": Request(form={**OF_THE_SESSION, "attribute:team": "A New Value"}),
    f"GET {PAGES_OF_ORG}/users/<user_id>/attributes": Request(things={"user_id": "{end_user_id}"}),
    f"POST {PAGES_OF_ORG}/users/<user_id>/attributes": Request(
        form={**OF_THE_SESSION, "attribute:team": "A New Value"}, things={"user_id": "{end_user_id}"}
    ),
    "POST /app/account/attributes": Request(form={**OF_THE_SESSION, "organization": "{org_slug}", "attribute:team": "A New Value"}),
    f"POST {APP_PAGES}/claims": Request(form={**OF_THE_SESSION, "fixed": "tenant = x", "version": "0"}),
    f"POST {APP_PAGES}/claims/preview": Request(form={**OF_THE_SESSION, "fixed": "tenant = x", "version": "0"}),
    f"POST {APP_PAGES}/claims/remove": Request(form=OF_THE_SESSION, setup_sql=WITH_CLAIMS),
    f"POST {APP_PAGES}/saml/metadata": Request(form={**OF_THE_SESSION, "metadata": service_provider_metadata()}),
    f"POST {APP_PAGES}/saml/certificate": Request(form=OF_THE_SESSION),
    f"POST {APP_PAGES}/saml/certificate/next": Request(form=OF_THE_SESSION),
    f"POST {APP_PAGES}/saml/certificate/next/delete": Request(form=OF_THE_SESSION, setup_sql=NEXT_CERTIFICATE),
    f"POST {APP_PAGES}/saml/certificate/activate": Request(form=OF_THE_SESSION, setup_sql=NEXT_CERTIFICATE),
    f"POST {APP_PAGES}/saml/certificate/undo": Request(form=OF_THE_SESSION, setup_sql=PREVIOUS_CERTIFICATE),
    f"POST {APP_PAGES}/saml/disable": Request(form=OF_THE_SESSION),
    f"POST {APP_PAGES}/providers/<provider>": Request(form={**OF_THE_SESSION, "client_id": "another", "client_secret": "and its secret"}),
    f"POST {APP_PAGES}/providers/<provider>/remove": Request(form=OF_THE_SESSION),
    f"POST {APP_PAGES}/plans/new": Request(form={**OF_THE_SESSION, "name": "Another", "price_cents": "100", "currency": "eur"}),
    f"POST {APP_PAGES}/plans/<plan_id>": Request(form={**OF_THE_SESSION, "name": "A New Name", "price_cents": "100", "currency": "eur"}),
    f"POST {APP_PAGES}/plans/<plan_id>/delete": Request(form=OF_THE_SESSION),
    f"GET {PAGES_OF_ORG}/users/<user_id>": Request(things={"user_id": "{end_user_id}"}),
    f"GET {PAGES_OF_ORG}/users/<user_id>/access": Request(things={"user_id": "{end_user_id}"}),
    **{
        f"GET {PAGES_OF_ORG}/users/<user_id>/{action}": Request(things={"user_id": "{end_user_id}"})
        for action in ("end-sessions", "password-reset", "block", "unblock", "second-factor", "recovery", "recovery/cancel")
    },
    **{
        f"POST {PAGES_OF_ORG}/users/<user_id>/{action}": Request(form=OF_THE_SESSION, things={"user_id": "{end_user_id}"})
        for action in ("end-sessions", "password-reset", "block")
    },
    f"POST {PAGES_OF_ORG}/users/<user_id>/unblock": Request(form=OF_THE_SESSION, things=END_USER, setup_sql=BLOCKED),
    f"POST {PAGES_OF_ORG}/users/<user_id>/second-factor": Request(
        form=OF_THE_SESSION, things={"user_id": "{end_user_id}"}, setup_sql=MADE_BY_ORGANIZATION
    ),
    f"POST {PAGES_OF_ORG}/users/<user_id>/recovery": Request(form=WITH_REASON, things=END_USER, setup_sql=MADE_BY_ORGANIZATION),
    f"POST {PAGES_OF_ORG}/users/<user_id>/recovery/cancel": Request(
        form=OF_THE_SESSION, things=END_USER, setup_sql=RECOVERED_BY_ORGANIZATION
    ),
    f"POST {PAGES_OF_ORG}/members/<user_id>/recovery": Request(form=WITH_REASON, setup_sql=MEMBER_MADE_BY_ORGANIZATION),
    f"POST {PAGES_OF_ORG}/members/<user_id>/recovery/cancel": Request(form=OF_THE_SESSION, setup_sql=MEMBER_RECOVERED_BY_ORGANIZATION),
    f"POST {PAGES_OF_ORG}/applications/new": Request(form={**OF_THE_SESSION, "kind": "web", "name": "Another One"}),
    **{
        f"POST {page}/sign-in-policy{action}": Request(
            form={**OF_THE_SESSION, "method:passkey": "yes", "grace_days": "14", "invited_domains": "anywhere.example", "version": "0"}
        )
        for page in (PAGES_OF_ORG, APP_PAGES)
        for action in ("", "/preview")
    },
    **{
        f"POST /app/platform/sign-in-policy{action}": Request(
            form={**OF_THE_SESSION, "second_factor": "everyone", "session_idle_minutes": "60", "grace_days": "7", "version": "0"}
        )
        for action in ("", "/preview")
    },
    f"POST {PAGES_OF_ORG}/sign-in-policy/break-glass": Request(form={**OF_THE_SESSION, "person_1": ""}, setup_sql=WITH_BREAK_GLASS),
    f"POST {PAGES_OF_ORG}/sign-in-policy/imposed-rules": Request(form=OF_THE_SESSION, setup_sql=WITH_IMPOSED_RULE),
    f"POST {APP_PAGES}/sign-in-policy/remove": Request(form=OF_THE_SESSION, setup_sql=WITH_POLICY),
    f"POST {APP_PAGES}/access": Request(form={**OF_THE_SESSION, "policy": "members", "launch_url": "https://anywhere.example/"}),
    f"POST {APP_PAGES}/authorization/new-role": Request(form={**OF_THE_SESSION, "slug": "another", "name": "Another One"}),
    f"POST {APP_PAGES}/authorization/roles/<role_slug>": Request(form={**OF_THE_SESSION, "name": "Another One"}),
    f"POST {APP_PAGES}/authorization/roles/<role_slug>/delete": Request(form=OF_THE_SESSION),
    f"POST {APP_PAGES}/authorization/roles/<role_slug>/users": Request(form={**OF_THE_SESSION, "email": "{own_email}"}),
    f"POST {APP_PAGES}/authorization/roles/<role_slug>/groups": Request(form={**OF_THE_SESSION, "group": "{pushed_group_id}"}),
    f"POST {APP_PAGES}/authorization/roles/<role_slug>/groups/<group_id>/remove": Request(form=OF_THE_SESSION),
    f"POST {APP_PAGES}/authorization/roles/<role_slug>/users/<user_id>/remove": Request(
        form=OF_THE_SESSION, things={"user_id": "{end_user_id}"}
    ),
    f"POST {APP_PAGES}/authorization/permissions": Request(form={**OF_THE_SESSION, "name": "another:permission"}),
    f"POST {APP_PAGES}/authorization/permissions/<permission_name>": Request(form={**OF_THE_SESSION, "description": "Another text"}),
    f"POST {APP_PAGES}/authorization/permissions/<permission_name>/delete": Request(form=OF_THE_SESSION),
    f"POST {APP_PAGES}/authorization/document": Request(form={**OF_THE_SESSION, **NEW_DOCUMENT, "confirm": "yes"}),
    f"POST {APP_PAGES}/authorization/document/preview": Request(form={**OF_THE_SESSION, **NEW_DOCUMENT}),
    f"POST {APP_PAGES}/assignments": Request(form={**OF_THE_SESSION, "email": "{own_email}"}),
    f"POST {APP_PAGES}/groups": Request(form={**OF_THE_SESSION, "group": "{pushed_group_id}"}),
    f"POST {APP_PAGES}/groups/<group_id>/remove": Request(form=OF_THE_SESSION),
    f"POST {PAGES_OF_ORG}/groups/new": Request(form={**OF_THE_SESSION, "name": "Another", "description": ""}),
    f"POST {PAGES_OF_ORG}/groups/<group_id>/members": Request(form={**OF_THE_SESSION, "email": "{own_email}"}),
    f"POST {PAGES_OF_ORG}/groups/<group_id>/members/<user_id>/remove": Request(form=OF_THE_SESSION, things={"user_id": "{end_user_id}"}),
    f"POST {PAGES_OF_ORG}/groups/<group_id>/applications": Request(form={**OF_THE_SESSION, "service": "{other_service_slug}"}),
    f"POST {PAGES_OF_ORG}/groups/<group_id>/applications/<service_slug>/remove": Request(form=OF_THE_SESSION),
    f"POST {PAGES_OF_ORG}/groups/<group_id>/attributes": Request(form={**OF_THE_SESSION, "attribute:team": "A New Value"}),
    f"POST {PAGES_OF_ORG}/groups/<group_id>/role": Request(form={**OF_THE_SESSION, "role": "{role_name}"}),
    f"POST {PAGES_OF_ORG}/groups/<group_id>/role/remove": Request(form=OF_THE_SESSION, things={"group_id": "{mapped_group_id}"}),
    f"POST {PAGES_OF_ORG}/groups/<group_id>/settings": Request(form={**OF_THE_SESSION, "name": "A New Name", "description": ""}),
    f"POST {PAGES_OF_ORG}/groups/<group_id>/delete": Request(form={**OF_THE_SESSION, "confirmation": "{group_name}"}),
    f"POST {PAGES_OF_ORG}/directory/tokens/<token_id>/groups": Request(form={**OF_THE_SESSION, "directory_groups": "yes"}),
    f"POST {APP_PAGES}/assignments/<user_id>/remove": Request(
        form=OF_THE_SESSION,
        things={"user_id": "{end_user_id}"},
        setup_sql="update service_users set enrolled_by = 'admin' where user_id = '{end_user_id}'",
    ),
    f"POST {APP_PAGES}/delete": Request(form={**OF_THE_SESSION, "confirmation": "{service_name}"}),
    f"POST {APP_PAGES}/api-keys/new": Request(form={**OF_THE_SESSION, "name": "Another", "permission:read:users": "yes"}),
    f"POST {APP_PAGES}/api-keys/<api_key_id>/revoke": Request(form=OF_THE_SESSION),
    f"POST {PLATFORM_ORGS}/approve": Request(
        form=OF_THE_SESSION, setup_sql="update organizations set status = 'pending' where id = '{org_id}'"
    ),
    f"POST {PLATFORM_ORGS}/reject": Request(
        form={**OF_THE_SESSION, "reason": "not a company"}, setup_sql="update organizations set status = 'pending' where id = '{org_id}'"
    ),
    f"POST {PLATFORM_ORGS}/suspend": Request(form={**OF_THE_SESSION, "confirmation": "{org_slug}"}),
    f"POST {PLATFORM_ORGS}/activate": Request(
        form=OF_THE_SESSION, setup_sql="update organizations set status = 'suspended' where id = '{org_id}'"
    ),
    f"GET {PLATFORM_ORGS}/admin-networks": Request(setup_sql=WITH_NETWORKS),
    f"POST {PLATFORM_ORGS}/admin-networks": Request(form={**OF_THE_SESSION, "reason": "a new office"}, setup_sql=WITH_NETWORKS),
    f"POST {PLATFORM_ORGS}/tier": Request(form={**OF_THE_SESSION, "tier_id": "{tier_id}", "max_users": "7"}),
    f"POST {PLATFORM_ORGS}/delete": Request(form={**OF_THE_SESSION, "confirmation": "{org_slug}"}),
    f"GET {PEOPLE_PAGES}": Request(things=GUARDED),
    **{f"GET {PEOPLE_PAGES}/{action}": Request(things=GUARDED) for action in PERSON_ACTIONS},
    f"POST {PEOPLE_PAGES}/end-sessions": Request(form=WITH_REASON, things=GUARDED),
    f"POST {PEOPLE_PAGES}/password-reset": Request(form=WITH_REASON, things=GUARDED),
    f"POST {PEOPLE_PAGES}/second-factor": Request(form=WITH_REASON, things=GUARDED),
    f"POST {PEOPLE_PAGES}/recovery": Request(form=WITH_REASON, things=GUARDED),
    f"POST {PEOPLE_PAGES}/recovery/cancel": Request(form=OF_THE_SESSION, things=GUARDED),
    f"POST {PEOPLE_PAGES}/deactivate": Request(form=WITH_REASON, things=GUARDED),
    f"POST {PEOPLE_PAGES}/reactivate": Request(form=WITH_REASON, things=GUARDED, setup_sql=DEACTIVATED),
    f"POST {PEOPLE_PAGES}/impersonate": Request(form=WITH_REASON, things=GUARDED),
    END_IMPERSONATION: Request(form={"form_token": "{own_form_token}"}),
    f"POST {PEOPLE_PAGES}/export": Request(form=OF_THE_SESSION),
    f"POST {PEOPLE_PAGES}/anonymize": Request(form={**OF_THE_SESSION, "confirmation": "{user_email}"}),
    f"POST {PEOPLE_PAGES}/promote": Request(form={**WITH_REASON, "confirmation": "{user_email}"}, setup_sql=WITH_SECOND_FACTOR),
    "POST /app/platform/owners/<user_id>/remove": Request(
        form={**WITH_REASON, "confirmation": "{user_email}"},
        setup_sql="update users set is_platform_owner = true where id = '{user_id}'",
    ),
    f"POST {RESOURCE_PAGES}/new": Request(
        form={**OF_THE_SESSION, "identifier": "https://new.{org_slug}.example/", "name": "Another One", "token_seconds": "60"}
    ),
    f"POST {RESOURCE_PAGES}/<resource_id>": Request(form={**OF_THE_SESSION, "name": "A New Name", "token_seconds": "60"}),
    f"POST {RESOURCE_PAGES}/<resource_id>/delete": Request(form={**OF_THE_SESSION, "confirmation": "{resource_name}"}),
    f"POST {RESOURCE_PAGES}/<resource_id>/access": Request(form={**OF_THE_SESSION, "policy": "members"}),
    f"POST {RESOURCE_PAGES}/<resource_id>/external-clients": Request(
        form={**OF_THE_SESSION, "admit": "listed", "access": "members", "preset:claude": "yes"}
    ),
    f"POST {RESOURCE_PAGES}/<resource_id>/external-clients/grants/<user_id>/<client_id>/end": Request(
        form=OF_THE_SESSION, things=OF_EXTERNAL_CLIENT
    ),
    f"POST {RESOURCE_PAGES}/<resource_id>/assignments": Request(form={**OF_THE_SESSION, "email": "{own_email}"}),
    f"POST {RESOURCE_PAGES}/<resource_id>/groups": Request(form={**OF_THE_SESSION, "group": "{pushed_group_id}"}),
    f"POST {RESOURCE_PAGES}/<resource_id>/groups/<group_id>/remove": Request(form=OF_THE_SESSION),
    f"POST {RESOURCE_PAGES}/<resource_id>/assignments/<user_id>/remove": Request(form=OF_THE_SESSION, things={"user_id": "{end_user_id}"}),
    f"POST {RESOURCE_PAGES}/<resource_id>/credentials/new": Request(form={**OF_THE_SESSION, "kind": "secret", "name": "Spare"}),
    f"POST {RESOURCE_PAGES}/<resource_id>/credentials/<credential_id>/revoke": Request(
        form=OF_THE_SESSION, things={"credential_id": "{resource_credential_id}"}
    ),
    f"POST {PAGES_OF_ORG}/service-accounts/<account_id>/api-resources/<resource_id>": Request(
        form={**OF_THE_SESSION, "scope:{org_slug}:orders": "yes"}, setup_sql=WITHOUT["of account"]
    ),
    f"POST {PAGES_OF_ORG}/service-accounts/<account_id>/created-secrets/end": Request(form=OF_THE_SESSION, setup_sql=MADE_BY_PROGRAM),
    f"POST {PAGES_OF_ORG}/service-accounts/<account_id>/api-resources/<resource_id>/remove": Request(form=OF_THE_SESSION),
    "POST /app/platform/service-accounts/new": Request(form={**OF_THE_SESSION, "name": "Another Robot"}),
    f"GET {ROBOT_PAGES}": Request(things=THEIR_ACCOUNT),
    f"POST {ROBOT_PAGES}": Request(form={**OF_THE_SESSION, "name": "A New Name"}, things=THEIR_ACCOUNT),
    f"POST {ROBOT_PAGES}/delete": Request(form={**OF_THE_SESSION, "confirmation": "Platform Robot"}, things=THEIR_ACCOUNT),
    f"GET {ROBOT_PAGES}/credentials": Request(things=THEIR_ACCOUNT),
    f"GET {ROBOT_PAGES}/credentials/new": Request(things=THEIR_ACCOUNT),
    f"POST {ROBOT_PAGES}/credentials/new": Request(form={**OF_THE_SESSION, "kind": "secret", "name": "Spare"}, things=THEIR_ACCOUNT),
    f"POST {ROBOT_PAGES}/credentials/<credential_id>/revoke": Request(form=OF_THE_SESSION, things=THEIR_ACCOUNT),
    f"POST {PAGES_OF_ORG}/service-accounts/new": Request(form={**OF_THE_SESSION, "name": "Another Robot", "role": "member"}),
    f"POST {PAGES_OF_ORG}/service-accounts/<account_id>": Request(form={**OF_THE_SESSION, "name": "A New Name"}),
    f"POST {PAGES_OF_ORG}/service-accounts/<account_id>/end": Request(form=OF_THE_SESSION, setup_sql=GOES_ON),
    f"POST {PAGES_OF_ORG}/service-accounts/<account_id>/delete": Request(form={**OF_THE_SESSION, "confirmation": "{account_name}"}),
    f"POST {PAGES_OF_ORG}/service-accounts/<account_id>/credentials/new": Request(
        form={**OF_THE_SESSION, "kind": "secret", "name": "Spare"}
    ),
    f"POST {PAGES_OF_ORG}/service-accounts/<account_id>/credentials/<credential_id>/revoke": Request(form=OF_THE_SESSION),
    f"POST {RESOURCE_PAGES}/<resource_id>/applications": Request(form={**OF_THE_SESSION, "client_id": "{client_id}"}),
    f"POST {RESOURCE_PAGES}/<resource_id>/applications/<client_id>": Request(form=OF_THE_SESSION),
    f"POST {RESOURCE_PAGES}/<resource_id>/applications/<client_id>/remove": Request(form=OF_THE_SESSION),
    f"POST {PAGES_OF_ORG}/webhooks/new": Request(
        form={**OF_THE_SESSION, "name": "Another", "url": "https://hooks.anywhere.example/in", "event:user.invited": "yes"}
    ),
    f"POST {PAGES_OF_ORG}/webhooks/<webhook_id>": Request(
        form={**OF_THE_SESSION, "name": "A New Name", "url": "https://hooks.anywhere.example/in", "event:user.invited": "yes"}
    ),
    f"POST {PAGES_OF_ORG}/webhooks/<webhook_id>/secret": Request(form=OF_THE_SESSION),
    f"POST {PAGES_OF_ORG}/webhooks/<webhook_id>/delete": Request(form={**OF_THE_SESSION, "confirmation": "{webhook_name}"}),
    f"POST {PAGES_OF_ORG}/webhooks/<webhook_id>/test": Request(form=OF_THE_SESSION),
    f"POST {PAGES_OF_ORG}/webhooks/<webhook_id>/deliveries/<delivery_id>/replay": Request(form=OF_THE_SESSION),
    f"POST {PAGES_OF_ORG}/webhooks/<webhook_id>/deliveries": Request(form={**OF_THE_SESSION, "period": "all"}),
    f"POST {PAGES_OF_ORG}/siem": Request(
        form={**OF_THE_SESSION, "provider": "http", "endpoint_url": "https://siem.anywhere.example/collect", "token": "a-token"}
    ),
    f"POST {PAGES_OF_ORG}/siem/test": Request(form=OF_THE_SESSION),
    f"POST {PAGES_OF_ORG}/siem/remove": Request(form=OF_THE_SESSION),
    f"POST {PAGES_OF_ORG}/mail-server": Request(
        form={**OF_THE_SESSION, "host": "mail.anywhere.example", "port": "587", "from_email": "post@anywhere.example"}
    ),
    f"POST {PAGES_OF_ORG}/mail-server/test": Request(form=OF_THE_SESSION),
    f"POST {PAGES_OF_ORG}/mail-server/remove": Request(form=OF_THE_SESSION),
    f"POST {PAGES_OF_ORG}/roles/new": Request(form={**OF_THE_SESSION, "slug": "reader", "name": "Reader", "right:members.view": "yes"}),
    f"POST {PAGES_OF_ORG}/roles/<role_name>": Request(form={**OF_THE_SESSION, "name": "Reader", "right:members.view": "yes"}),
    f"POST {PAGES_OF_ORG}/roles/<role_name>/delete": Request(form=OF_THE_SESSION),
    f"POST {PAGES_OF_ORG}/members/<user_id>/role": Request(form={**OF_THE_SESSION, "role": "admin"}),
    f"POST {PAGES_OF_ORG}/members/<user_id>/end-sessions": Request(form=OF_THE_SESSION),
    f"POST {PAGES_OF_ORG}/members/<user_id>/password-reset": Request(form=OF_THE_SESSION),
    f"POST {PAGES_OF_ORG}/members/<user_id>/remove": Request(form={**OF_THE_SESSION, "confirmation": "{user_email}", "block": "yes"}),
    f"GET {PAGES_OF_ORG}/selected-people": Request(query={"action": "remove", "user:{user_id}": "yes"}),
    f"POST {PAGES_OF_ORG}/selected-people/role": Request(form={**SELECTED_MEMBER, "role": "admin"}),
    f"POST {PAGES_OF_ORG}/selected-people/end-sessions": Request(form=SELECTED_MEMBER),
    f"POST {PAGES_OF_ORG}/selected-people/password-reset": Request(form=SELECTED_MEMBER),
    f"POST {PAGES_OF_ORG}/selected-people/remove": Request(form={**SELECTED_MEMBER, "confirmation": "1 member", "block": "yes"}),
    f"POST {PAGES_OF_ORG}/selected-people/resend": Request(form={**OF_THE_SESSION, "invitation:{invitation_id}": "yes"}),
    f"POST {PAGES_OF_ORG}/selected-people/cancel": Request(form={**OF_THE_SESSION, "invitation:{invitation_id}": "yes"}),
    f"POST {PAGES_OF_ORG}/invitations/new": Request(form={**OF_THE_SESSION, "addresses": "newcomer@anywhere.example", "role": "member"}),
    f"POST {PAGES_OF_ORG}/invitations/new#admin": Request(
        form={**OF_THE_SESSION, "addresses": "newcomer@anywhere.example", "role": "admin"}
    ),
    f"POST {PAGES_OF_ORG}/invitations/<invitation_id>/cancel": Request(form=OF_THE_SESSION),
    f"POST {PAGES_OF_ORG}/invitations/<invitation_id>/resend": Request(form=OF_THE_SESSION),
    "POST /app/account/sessions/<session_id>/end": Request(form=OF_THE_SESSION),
    "POST /app/account/sessions/end-others": Request(form=OF_THE_SESSION),
    "POST /auth/device/code": Request({"org": "{org_slug}", "service": "{service_slug}"}),
    "POST /auth/token#external": Request({"refresh_token": "{registered_refresh_token}", "client_id": "{registered_client}"}),
    "POST /auth/device/code#external": Request({"client_id": "{registered_client}", **OF_REQUEST}),
    "POST /auth/revoke#external": Request({"token": "{registered_refresh_token}", "client_id": "{registered_client}"}),
    "POST /auth/par#external": Request(
        {
            **{"client_id": "{registered_client}", "redirect_uri": "https://assistant.{org_slug}.example/callback"},
            **{"response_type": "code", **OF_REQUEST},
        }
    ),
    "POST /auth/token": Request({"refresh_token": "{refresh_token}"}),
    "POST /auth/token#code": Request(
        {
            "grant_type": "authorization_code",
            "code": "{authorization_code}",
            "redirect_uri": "{redirect_uri}",
            "code_verifier": "{code_verifier}",
            "client_id": "{client_id}",
            "client_secret": "{client_secret}",
        }
    ),
    "POST /auth/revoke": Request({"token": "made up"}),
    "POST /auth/introspect": Request({"token": "made up", "client_id": "{client_id}", "client_secret": "{client_secret}"}),
    "POST /auth/par": Request(
        {
            "client_id": "{client_id}",
            "client_secret": "{client_secret}",
            "response_type": "code",
            "redirect_uri": "{redirect_uri}",
        }
    ),
    "GET /auth/authorize": Request(query=AUTHORIZATION),
    "POST /auth/authorize": Request(form=AUTHORIZATION),
    "POST /auth/end-session": Request(form={**OF_THE_SESSION, "answer": "continue"}),
    "GET /auth/device/verify": Request(query={"user_code": "{user_code}"}),
    "POST /auth/device/verify": Request({"user_code": "{user_code}", "action": "approve"}),
    "POST /auth/device/verify#form": Request(form={**OF_THE_SESSION, "user_code": "{user_code}", "action": "approve"}),
    "GET /docs/<path:page>": Request(things={"page": "getting-started"}),
    "GET /assets/<name>": Request(things={"name": asset_url("icon.svg").removeprefix("/assets/")}),
}


# Routes that ignore a kind of credentials are tried with the strongest credentials of that kind.
_OF_PEOPLE: Final = frozenset({"anonymous", "platform", "as-owner", "owner-application", "waiting"})
_OF_KEYS: Final = frozenset({"key"})
_OF_ROBOTS: Final = frozenset({"granted-robot"})
_OF_TOKENS: Final = frozenset({"owner-token"})
_OF_BROWSERS: Final = frozenset({"browser"})
_OF_DIRECTORIES: Final = frozenset({"directory"})
# A token is optional here, but an invalid token is refused.
_CHECKS_OPTIONAL_TOKEN: Final = frozenset({"POST /api/invitations/accept", "POST /api/invitations/decline"})


def read_matrix() -> dict[str, dict[str, str]]:
    """Return the expected status for every caller by route, such as `GET /api/user`.

    Raises: ValueError if a row has the wrong number of cells.
    """
    people, keys, pages = _read(MATRIX, PEOPLE), _read(SERVICE_INTERFACE, KEYS), _read(PAGES, {"else": "else", **BROWSERS})
    rows = {route: row | dict.fromkeys([*KEYS.values(), *BROWSERS.values()], row["anonymous"]) for route, row in people.items()}
    rows |= {route: dict.fromkeys([*PEOPLE.values(), *BROWSERS.values()], "401") | row for route, row in keys.items()}
    pages |= console_rows(people)
    for route, row in pages.items():
        other_status = row.pop("else")
        row |= {name: row.get(name, row["browser"]) for name in CONSOLE_BROWSERS}
        if route in personal_pages() and route != END_IMPERSONATION and (route.startswith("POST") or route in fresh_pages()):
            row["impersonating-browser"] = "403"  # security I-4
        rows[route] = dict.fromkeys([*PEOPLE.values(), *KEYS.values()], other_status) | row
    alike = _read(ALIKE, {**PEOPLE, **BROWSERS})
    rows |= {route: row | dict.fromkeys(KEYS.values(), row["anonymous"]) for route, row in alike.items()}
    for route, row in rows.items():
        # Routes that read access tokens ignore API keys.
        checks_tokens = route not in keys and (row["anonymous"] == "401" or route in _CHECKS_OPTIONAL_TOKEN)
        row |= dict.fromkeys(DIRECTORIES.values(), NO_ACCESS_TOKEN if checks_tokens else row["anonymous"])
        row |= dict.fromkeys(EXTERNAL_CLIENTS, "401" if checks_tokens else row["anonymous"])
    directories = _read(SCIM, DIRECTORIES)
    others = [*PEOPLE.values(), *KEYS.values(), *BROWSERS.values(), *CONSOLE_BROWSERS, *EXTERNAL_CLIENTS]
    rows |= {route: dict.fromkeys(others, "401") | row for route, row in directories.items()}
    opened = _read(SETUP, SETUP_LINKS)
    rows = {route: row | {"setup-link": row["anonymous"]} for route, row in rows.items()}
    rows |= {route: dict.fromkeys([*others, *DIRECTORIES.values()], "401") | row for route, row in opened.items()}
    robots = robot_rows(rows, _read(OF_ORGANIZATION, ROBOTS), _read(OF_PLATFORM, PLATFORM_ROBOTS))
    tokens = token_rows(rows)
    rows = {route: row | robots[route] | tokens[route] for route, row in rows.items()}
    if len(rows) != len(people) + len(keys) + len(pages) + len(alike) + len(directories) + len(opened):
        raise ValueError("a route is in more than one table")
    return rows


def worth_trying(route: str) -> frozenset[str]:
    """Return the callers for a route: all, or only some callers with credentials that it ignores."""
    if route in _READS_TOKENS:
        return _others_worth_trying(route) | {*ALL_ROBOTS, *ALL_TOKENS, *EXTERNAL_CLIENTS, "setup-link"}
    return _others_worth_trying(route) | _OF_ROBOTS | _OF_TOKENS | {"setup-link"}


def _others_worth_trying(route: str) -> frozenset[str]:
    people, keys, browsers = (frozenset(columns.values()) for columns in (PEOPLE, KEYS, BROWSERS))
    if route.partition(" ")[2].startswith("/setup/steps"):
        return _OF_PEOPLE | _OF_KEYS | _OF_BROWSERS | _OF_DIRECTORIES
    if "/scim/" in route:
        return _OF_PEOPLE | _OF_KEYS | _OF_BROWSERS | frozenset(DIRECTORIES.values())
    if without_variant(route) in console_operations():
        return _OF_PEOPLE | _OF_KEYS | browsers | frozenset(CONSOLE_BROWSERS) | _OF_DIRECTORIES
    if route in personal_pages():
        return _OF_PEOPLE | _OF_KEYS | browsers | {"impersonating-browser"} | _OF_DIRECTORIES
    if route in _OF_A_PAGE:
        return _OF_PEOPLE | _OF_KEYS | browsers | _OF_DIRECTORIES
    if route in _OF_BOTH:
        return people | _OF_KEYS | browsers | _OF_DIRECTORIES
    if "/api/service/" in route or "/access/v1/" in route:
        return _OF_PEOPLE | keys | _OF_BROWSERS | _OF_DIRECTORIES
    return people | _OF_KEYS | _OF_BROWSERS | _OF_DIRECTORIES


def _read(table: str, columns: Mapping[str, str]) -> dict[str, dict[str, str]]:
    header, *lines = (line.split() for line in table.splitlines() if line.strip())
    if header != list(columns):
        raise ValueError(f"the columns are {header}, and not {list(columns)}")
    rows: dict[str, dict[str, str]] = {}
    for method, path, *cells in lines:
        route = f"{method} {re.sub('^{.*?}', lambda short: SHORT[short[0]], path)}"
        if len(cells) != len(header) or route in rows:
            raise ValueError(f"the row of {route} has {len(cells)} cells where there are {len(header)} columns, or is there twice")
        rows[route] = dict(zip(columns.values(), cells, strict=True))
    return rows


_OF_A_PAGE: Final = frozenset(_read(PAGES, {"else": "else", **BROWSERS}))
_OF_BOTH: Final = frozenset(_read(ALIKE, {**PEOPLE, **BROWSERS}))
_READS_TOKENS: Final = frozenset(route for route, row in read_matrix().items() if row["revoked-robot"] == "401")
