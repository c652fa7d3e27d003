"""The output of `gatehouse demo`: the seeded data as JSON, or as curl commands."""

from collections.abc import Sequence
from typing import Any, Final
from urllib.parse import quote

from core.demo.creation import mobile_only_uris
from core.demo.model.demo import Application, Demo, DemoUser, Tenant
from core.federation.saml.model import configuration as saml_model
from core.kernel.page_paths import SETUP_PATH


def as_json(demo: Demo, base_url: str) -> dict[str, Any]:
    """Return all seeded data as a JSON object, including secrets."""
    return {
        "base_url": base_url,
        "platform_owner": {"email": demo.platform_owner.email, "password": demo.platform_owner.password},
        **_tenant(demo.first, base_url),
        "other_organization": _tenant(demo.other, base_url),
    }


def _tenant(tenant: Tenant, base_url: str) -> dict[str, Any]:
    organization = tenant.organization
    return {
        "organization": {"id": str(organization.id), "slug": organization.slug, "status": organization.status.value},
        "owner": _user(tenant.owner),
        "admin": _user(tenant.admin),
        "member": _user(tenant.member),
        "auditor": _user(tenant.auditor),
        "service": _application(tenant.web),
        "mobile_service": _application(tenant.mobile),
        "saml": {
            "metadata_url": base_url + saml_model.endpoint_path(organization.slug, tenant.web.service.slug, "metadata"),
            "entity_id": tenant.saml.entity_id,
            "acs_url": tenant.saml.acs_url,
            "slo_url": tenant.saml.slo_url,
        },
        "plan": {"id": str(tenant.plan.id), "billing_price_id": tenant.plan.billing_price_id},
        "api_key": tenant.api_key,
        "api_resource": {
            "identifier": tenant.api_resource.resource.identifier,
            "client_id": str(tenant.api_resource.resource.id),
            "client_secret": tenant.api_resource.client_secret,
        },
        "service_account": {"client_id": str(tenant.service_account.client_id), "client_secret": tenant.service_account.client_secret},
        "scim_token": tenant.scim_token,
        "connection": {"slug": tenant.connection.slug, "preset": tenant.connection.preset, "state": tenant.connection.state.value},
        "routed_domain": tenant.routed_domain,
        "setup_link": _setup_link(tenant, base_url),
        "webhook": {"id": str(tenant.webhook.id), "url": tenant.webhook.url, "secret": tenant.webhook_secret},
        "end_users": [_user(user) | {"totp_secret": user.totp_secret} for user in tenant.end_users],
    }


def _setup_link(tenant: Tenant, base_url: str) -> str:
    return f"{base_url}{SETUP_PATH}?token={tenant.setup_link}"


def _user(user: DemoUser) -> dict[str, Any]:
    return {"id": str(user.id), "email": user.email, "password": user.password}


def _application(application: Application) -> dict[str, Any]:
    service = application.service
    ids = {"id": str(service.id), "slug": service.slug, "client_id": str(service.client_id)}
    secret = {} if application.client_secret is None else {"client_secret": application.client_secret}
    return ids | secret | {"redirect_uris": list(service.redirect_uris)}


def notes(demo: Demo, redirect_uris: Sequence[str]) -> list[str]:
    """Return a note if some redirect URIs were set only for the mobile application."""
    mobile_only = mobile_only_uris(redirect_uris)
    if not mobile_only:
        return []
    web, mobile = demo.first.web.service, demo.first.mobile.service
    note = f"{', '.join(mobile_only)} was set only for {mobile.slug}: {web.slug} allows only https:// and http://localhost."
    unchanged = f"{web.slug} keeps {', '.join(web.redirect_uris)}."
    return [f"{note} {unchanged}" if len(mobile_only) == len(redirect_uris) else note]


WALK: Final = """\
# {organization}: an owner, an admin, a member, and two users of its services. All of this was just created. Paste the commands to try.
api={base_url}
json='Content-Type: application/json'
tokens=$(mktemp -d)

# get FIELD...: print one field of a JSON answer. If the answer is an error, print the error and return 1.
get() {{
    python3 -c 'import json, sys
text = sys.stdin.read()
try:
    value = json.loads(text)
    for field in sys.argv[1:]:
        value = value[field]
    print(value)
except (ValueError, LookupError, TypeError):
    sys.exit("get: " + (text or "the answer is empty"))' "$@"
}}

# bearer NAME EMAIL PASSWORD: print the Authorization header of an account. Sign in first, and again when the access token expires.
bearer() {{
    until=0
    [ ! -f "$tokens/$1" ] || read -r until token <"$tokens/$1"
    if [ "$(date +%s)" -ge "$until" ]; then
        answer=$(curl -s "$api/api/auth/login" -H "$json" -d '{{"email": "'"$2"'", "password": "'"$3"'"}}')
        token=$(printf %s "$answer" | get access_token) || return
        until=$(($(date +%s) + $(printf %s "$answer" | get expires_in) - 30))
        echo "$until $token" >"$tokens/$1"
    fi
    echo "Authorization: Bearer $token"
}}
owner() {{ bearer owner {owner} {owner_password}; }}
user() {{ bearer user {end_user} {end_user_password}; }}
platform() {{ bearer platform {platform_owner} {platform_owner_password}; }}

# code SECRET: print the current code of an authenticator app, as "oathtool --totp --base32" does.
code() {{
    python3 -c 'import base64, hmac, struct, sys, time
mac = hmac.digest(base64.b32decode(sys.argv[1]), struct.pack(">Q", int(time.time()) // 30), "sha1")
print("%06d" % ((struct.unpack(">I", mac[mac[-1] & 15:][:4])[0] & 0x7fffffff) % 1000000))' "$1"
}}

# claims: print the claims of the ID token in an answer. An application also checks its signature.
claims() {{
    get id_token | python3 -c 'import base64, json, sys
print(json.dumps(json.loads(base64.urlsafe_b64decode(sys.stdin.read().split(".")[1] + "==")), indent=2))'
}}

# The owner reads the organization and its services.
curl -s $api/api/organizations/{slug} -H "$(owner)"
curl -s $api/api/organizations/{slug}/services -H "$(owner)"
curl -s $api/api/organizations/{slug}/services/{service}/plans -H "$(owner)"
curl -s "$api/api/organizations/{slug}/users?search=ada" -H "$(owner)"
curl -s $api/api/organizations/{slug}/analytics/logins-by-service -H "$(owner)"
curl -s $api/api/organizations/{slug}/audit-log -H "$(owner)"

# The organization's webhook receives sign-in events, but its URL does not exist. Change it to a URL of your own receiver. Deliveries are
# signed with {webhook_secret}.
curl -s $api/api/organizations/{slug}/webhooks/{webhook_id}/deliveries -H "$(owner)"

# A program uses the service with an API key that has all permissions.
key='X-Api-Key: {api_key}'
curl -s $api/api/service/info -H "$key"
curl -s $api/api/service/users -H "$key"
curl -s $api/api/service/users -H "$key" -H "$json" -d '{{"email": "new@customer.{slug}.example"}}'
curl -s $api/api/service/subscriptions/{end_user_id} -H "$key"
curl -s $api/api/service/analytics -H "$key"

# Before it shows an order, the shop asks whether the user may see it. The answer names the role of the user.
curl -s $api/access/v1/evaluation -H "$key" -H "$json" -d '{{"subject": {{"type": "user", "id": "{end_user_id}"}},
    "action": {{"name": "orders:read"}}, "resource": {{"type": "order", "id": "1042"}}}}'

# A service account calls this API for the organization, without a user. It may only read members.
robot() {{ curl -s $api/auth/token -u {robot_id}:{robot_secret} -d grant_type=client_credentials "$@" | get access_token; }}
curl -s $api/api/organizations/{slug}/members -H "Authorization: Bearer $(robot)"

# It also gets tokens for the organization's own API, an API resource. That API checks the signature of a token, or asks about it.
orders=$(robot -d resource={resource} -d scope=orders:read)
curl -s $api/auth/introspect -u {resource_id}:{resource_secret} -d token=$orders

# A script acts as the owner with a personal access token, within its scopes. To create one, the owner must have signed in recently.
rm -f "$tokens/owner"
script="Authorization: Bearer $(curl -s $api/api/user/personal-tokens -H "$(owner)" -H "$json" \\
    -d '{{"name": "Member list", "org_slug": "{slug}", "scopes": ["members:read"], "expires_in_days": 1}}' | get token)"
curl -s $api/api/organizations/{slug}/members -H "$script"

# A directory provisions users of the organization over SCIM.
scim='Authorization: Bearer {scim_token}'
curl -s "$api/scim/v2/Users?count=2" -H "$scim"
curl -s $api/scim/v2/Users -H "$scim" -H "$json" \\
    -d '{{"schemas": ["urn:ietf:params:scim:schemas:core:2.0:User"], "userName": "hedy@{slug}.example", "displayName": "Hedy"}}'
curl -sG $api/scim/v2/Users -H "$scim" --data-urlencode 'filter=userName eq "hedy@{slug}.example"'
curl -s "$api/scim/v2/Groups?excludedAttributes=members" -H "$scim"

# The group Finance opens the application back-office, Auditors gives its members the role auditor, and Sales has a cost center.
# A directory pushes groups, too.
curl -s $api/api/organizations/{slug}/groups -H "$(owner)"
curl -s $api/api/organizations/{slug}/services/back-office/groups -H "$(owner)"
curl -s $api/scim/v2/Groups -H "$scim" -H "$json" \\
    -d '{{"schemas": ["urn:ietf:params:scim:schemas:core:2.0:Group"], "displayName": "Support"}}'

# A user signs in to the service. The application gets tokens with the user's plan.
curl -s $api/api/auth/login -H "$json" -d '{{"email": "{end_user}", "password": "{end_user_password}",
    "org_slug": "{slug}", "service_slug": "{service}"}}'

# The user also has a passkey. It only shows what passkeys look like, because its private key exists nowhere. Add your own
# at {base_url}/app/account/security.
curl -s $api/api/user/passkeys -H "$(user)"

# A web application does that in a browser (OpenID Connect). An OpenID Connect library needs only these values:
#   issuer         {base_url}
#   client id      {client_id}
#   client secret  {client_secret}
# Open the printed URL, sign in as {end_user} with the password
# {end_user_password}, and continue. The browser ends at {redirect_uri}. Copy the code from its URL. It is valid for a minute.
echo "$api/auth/authorize?response_type=code&scope=openid+profile+email&client_id={client_id}\\
&redirect_uri={quoted_redirect_uri}&state=af0ifjs"
code=...
curl -s $api/auth/token -u {client_id}:{client_secret} \\
    -d grant_type=authorization_code -d code=$code -d redirect_uri={quoted_redirect_uri} | claims

# A mobile application has no secret. It creates a random verifier for each sign-in, and sends its hash first (PKCE).
verifier=$(python3 -c 'import secrets; print(secrets.token_urlsafe(32))')
challenge=$(python3 -c 'import base64, hashlib, sys
print(base64.urlsafe_b64encode(hashlib.sha256(sys.argv[1].encode()).digest()).rstrip(b"=").decode())' "$verifier")
echo "$api/auth/authorize?client_id={mobile_client_id}&redirect_uri={quoted_mobile_redirect_uri}\\
&code_challenge=$challenge&code_challenge_method=S256"
code=...
curl -s $api/auth/token -d client_id={mobile_client_id} -d grant_type=authorization_code -d code=$code -d code_verifier="$verifier" \\
    -d redirect_uri={quoted_mobile_redirect_uri}

# A program without a browser shows a code, which the user enters at {base_url}/auth/device/verify. Or approve it with curl:
codes=$(curl -s $api/auth/device/code -d client_id={client_id} -d 'scope=openid profile email')
curl -s $api/auth/device/verify -H "$json" -H "$(user)" \\
    -d '{{"user_code": "'$(printf %s "$codes" | get user_code)'", "action": "approve"}}'
curl -s $api/auth/token -d client_id={client_id} -d device_code=$(printf %s "$codes" | get device_code) \\
    -d grant_type=urn:ietf:params:oauth:grant-type:device_code | claims

# The web application also speaks SAML: its metadata, its configuration, and the response for the owner.
curl -s $api/saml/{slug}/{service}/metadata
curl -s $api/api/organizations/{slug}/services/{service}/saml -H "$(owner)"
curl -s $api/api/organizations/{slug}/services/{service}/saml/login -H "$(owner)" \\
    -H 'Accept: application/json' | get saml_response | base64 -d

# Users can sign in with an identity provider of their own company. In this draft of a connection, you play the identity provider: in a
# browser, sign in as {owner} at {base_url}/app/organizations/{slug}/connections/{connection}/test
curl -s $api/api/organizations/{slug}/connections/{connection} -H "$(owner)"
# As soon as it is verified, {routed_domain} leads to the provider of its route.
curl -s $api/api/organizations/{slug}/hrd -H "$(owner)"
# The IT department of a customer prepares a connection, a domain and a directory with a set-up link. Open it within five minutes:
# {setup_link}
curl -s $api/api/organizations/{slug}/setup-links -H "$(owner)"

# Another user has two-factor authentication. The password gives a pre-auth token. With it, a code gives the tokens. Each code works once.
mfa_user='{{"email": "{mfa_user}", "password": "{mfa_user_password}"'
pre_auth="Authorization: Bearer $(curl -s $api/api/auth/login -H "$json" -d "$mfa_user}}" | get access_token)"
mfa_tokens=$(curl -s $api/api/auth/mfa/verify -H "$json" -H "$pre_auth" \\
    -d '{{"code": "'$(code {totp_secret})'", "trust_device": true, "device_name": "My terminal"}}')
with_mfa="Authorization: Bearer $(printf %s "$mfa_tokens" | get access_token)"
curl -s $api/api/user/mfa/status -H "$with_mfa"
curl -s $api/api/user/devices -H "$with_mfa"
# The device is trusted now: with its token, the user signs in without a code.
curl -s $api/api/auth/login -H "$json" -d "$mfa_user"', "device_token": "'$(printf %s "$mfa_tokens" | get device_token)'"}}'

# A platform owner lists all organizations.
curl -s $api/api/platform/organizations -H "$(platform)"

# To print all demo data, including another organization, run gatehouse demo --json. Each run creates new passwords and secrets.
# {organization} asks its owner and admins for a second factor within 14 days. Until then, its pages and applications remind them.
# In a browser, sign in as any user above at {base_url}/app/sign-in. Their account page is {base_url}/app/account.
"""


def as_walk(demo: Demo, base_url: str) -> str:
    """Return the commands to paste into a shell."""
    tenant = demo.first
    redirect_uri = tenant.web.service.redirect_uris[0]
    [mfa_user] = [user for user in tenant.end_users if user.totp_secret is not None]
    return WALK.format(
        base_url=base_url,
        organization=tenant.organization.name,
        slug=tenant.organization.slug,
        service=tenant.web.service.slug,
        client_id=tenant.web.service.client_id,
        client_secret=tenant.web.client_secret,
        redirect_uri=redirect_uri,
        quoted_redirect_uri=quote(redirect_uri, safe=""),
        mobile_client_id=tenant.mobile.service.client_id,
        quoted_mobile_redirect_uri=quote(tenant.mobile.service.redirect_uris[0], safe=""),
        owner=tenant.owner.email,
        owner_password=tenant.owner.password,
        api_key=tenant.api_key,
        resource=tenant.api_resource.resource.identifier,
        resource_id=tenant.api_resource.resource.id,
        resource_secret=tenant.api_resource.client_secret,
        robot_id=tenant.service_account.client_id,
        robot_secret=tenant.service_account.client_secret,
        scim_token=tenant.scim_token,
        connection=tenant.connection.slug,
        routed_domain=tenant.routed_domain,
        setup_link=_setup_link(tenant, base_url),
        webhook_id=tenant.webhook.id,
        webhook_secret=tenant.webhook_secret,
        end_user_id=tenant.end_users[0].id,
        end_user=tenant.end_users[0].email,
        end_user_password=tenant.end_users[0].password,
        mfa_user=mfa_user.email,
        mfa_user_password=mfa_user.password,
        totp_secret=mfa_user.totp_secret,
        platform_owner=demo.platform_owner.email,
        platform_owner_password=demo.platform_owner.password,
    )
