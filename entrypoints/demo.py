"""What `gatehouse demo` prints: everything that there is to try, as JSON or as a walk with curl."""

from collections.abc import Sequence
from typing import Any, Final
from urllib.parse import quote

from core.demo import Application, Credentials, Demo, Tenant, for_devices_alone
from core.federation.saml import configuration_rules as saml_rules


def as_json(demo: Demo, base_url: str) -> dict[str, Any]:
    """One object with all of it, secrets included."""
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
        "owner": _person(tenant.owner),
        "admin": _person(tenant.admin),
        "member": _person(tenant.member),
        "service": _application(tenant.web),
        "mobile_service": _application(tenant.mobile),
        "saml": {
            "metadata_url": base_url + saml_rules.endpoint_path(organization.slug, tenant.web.service.slug, "metadata"),
            "entity_id": tenant.saml.entity_id,
            "acs_url": tenant.saml.acs_url,
            "slo_url": tenant.saml.slo_url,
        },
        "plan": {"id": str(tenant.plan.id), "billing_price_id": tenant.plan.billing_price_id},
        "api_key": tenant.api_key,
        "scim_token": tenant.scim_token,
        "webhook": {"id": str(tenant.webhook.id), "url": tenant.webhook.url, "secret": tenant.webhook_secret},
        "end_users": [_person(who) | {"totp_secret": who.totp_secret} for who in tenant.end_users],
    }


def _person(who: Credentials) -> dict[str, Any]:
    return {"id": str(who.id), "email": who.email, "password": who.password}


def _application(application: Application) -> dict[str, Any]:
    service = application.service
    shown = {"id": str(service.id), "slug": service.slug, "client_id": str(service.client_id)}
    secret = {} if application.client_secret is None else {"client_secret": application.client_secret}
    return shown | secret | {"redirect_uris": list(service.redirect_uris)}


def notes(demo: Demo, redirect_uris: Sequence[str]) -> list[str]:
    """What became of redirect URIs that not every application may have, in sentences."""
    alone = for_devices_alone(redirect_uris)
    if not alone:
        return []
    web, mobile = demo.first.web.service, demo.first.mobile.service
    told = f"{', '.join(alone)} went to {mobile.slug} alone: {web.slug} takes none but https:// and http://localhost."
    kept = f"{web.slug} keeps {', '.join(web.redirect_uris)}."
    return [f"{told} {kept}" if len(alone) == len(redirect_uris) else told]


WALK: Final = """\
# {organization}: its owner, an admin, a member, and two people who use its services. All of it is there now; paste what you like.
api={base_url}
json='Content-Type: application/json'
get() {{ python3 -c 'import functools, json, sys; print(functools.reduce(dict.get, sys.argv[1:], json.load(sys.stdin)))' "$@"; }}
code() {{ python3 -c 'import base64, hmac, struct, sys, time   # as "oathtool --totp --base32" does
mac = hmac.digest(base64.b32decode(sys.argv[1]), struct.pack(">Q", int(time.time()) // 30), "sha1")
print("%06d" % ((struct.unpack(">I", mac[mac[-1] & 15:][:4])[0] & 0x7fffffff) % 1000000))' "$1"; }}

# The owner looks at the organization and its services.
owner="Authorization: Bearer $(curl -s $api/api/auth/login -H "$json" \\
    -d '{{"email": "{owner}", "password": "{owner_password}"}}' | get access_token)"
curl -s $api/api/organizations/{slug} -H "$owner"
curl -s $api/api/organizations/{slug}/services -H "$owner"
curl -s $api/api/organizations/{slug}/services/{service}/plans -H "$owner"
curl -s "$api/api/organizations/{slug}/users?search=ada" -H "$owner"
curl -s $api/api/organizations/{slug}/analytics/logins-by-service -H "$owner"
curl -s $api/api/organizations/{slug}/audit-log -H "$owner"

# Its webhook is told of logins, at an address that nobody has. Give it one of yours; what it is told is signed with {webhook_secret}.
curl -s $api/api/organizations/{slug}/webhooks/{webhook_id}/deliveries -H "$owner"

# A program of the service, with an API key that may do everything.
key='X-Api-Key: {api_key}'
curl -s $api/api/service/info -H "$key"
curl -s $api/api/service/users -H "$key"
curl -s $api/api/service/users -H "$key" -H "$json" -d '{{"email": "new@customer.{slug}.example"}}'
curl -s $api/api/service/subscriptions/{end_user_id} -H "$key"
curl -s $api/api/service/analytics -H "$key"

# A directory provisions the people of the organization over SCIM.
scim='Authorization: Bearer {scim_token}'
curl -s "$api/scim/v2/Users?count=2" -H "$scim"
curl -s $api/scim/v2/Users -H "$scim" -H "$json" \\
    -d '{{"schemas": ["urn:ietf:params:scim:schemas:core:2.0:User"], "userName": "hedy@{slug}.example", "displayName": "Hedy"}}'
curl -sG $api/scim/v2/Users -H "$scim" --data-urlencode 'filter=userName eq "hedy@{slug}.example"'
curl -s "$api/scim/v2/Groups?excludedAttributes=members" -H "$scim"

# A person signs in to the service; the application gets tokens that say what the person has there.
curl -s $api/api/auth/login -H "$json" -d '{{"email": "{end_user}", "password": "{end_user_password}",
    "org_slug": "{slug}", "service_slug": "{service}"}}'

# A web application does that in a browser (OAuth). Open the address, sign in as {end_user} with the password {end_user_password},
# and continue. The browser goes to {redirect_uri}, where nobody has to listen: take the code from its address,
# which is good for a minute.
echo "$api/auth/authorize?client_id={client_id}&redirect_uri={quoted_redirect_uri}&state=af0ifjs"
code=...
curl -s $api/auth/token -u {client_id}:{client_secret} \\
    -d grant_type=authorization_code -d code=$code -d redirect_uri={quoted_redirect_uri}

# An application on a telephone keeps no secret. It makes one up for each sign-in, and sends its hash first (PKCE).
verifier=$(python3 -c 'import secrets; print(secrets.token_urlsafe(32))')
challenge=$(python3 -c 'import base64, hashlib, sys
print(base64.urlsafe_b64encode(hashlib.sha256(sys.argv[1].encode()).digest()).rstrip(b"=").decode())' "$verifier")
echo "$api/auth/authorize?client_id={mobile_client_id}&redirect_uri={quoted_mobile_redirect_uri}\\
&code_challenge=$challenge&code_challenge_method=S256"
code=...
curl -s $api/auth/token -d client_id={mobile_client_id} -d grant_type=authorization_code -d code=$code -d code_verifier="$verifier" \\
    -d redirect_uri={quoted_mobile_redirect_uri}

# A program without a browser shows a code, which the person types at {base_url}/auth/device/verify; or approves like this.
codes=$(curl -s $api/auth/device/code -d client_id={client_id})
theirs="Authorization: Bearer $(curl -s $api/api/auth/login -H "$json" \\
    -d '{{"email": "{end_user}", "password": "{end_user_password}"}}' | get access_token)"
curl -s $api/auth/device/verify -H "$json" -H "$theirs" \\
    -d '{{"user_code": "'$(printf %s "$codes" | get user_code)'", "action": "approve"}}'
curl -s $api/auth/token -d client_id={client_id} -d device_code=$(printf %s "$codes" | get device_code) \\
    -d grant_type=urn:ietf:params:oauth:grant-type:device_code

# The web application speaks SAML, too: what it has to know, how it is set up, and what it gets to know of the owner, who is signed in.
curl -s $api/saml/{slug}/{service}/metadata
curl -s $api/api/organizations/{slug}/services/{service}/saml -H "$owner"
curl -s $api/api/organizations/{slug}/services/{service}/saml/login -H "$owner" \\
    -H 'Accept: application/json' | get saml_response | base64 -d

# Another one has two-factor authentication: the password gets a token to go on with, and a code, which is good once, the tokens.
cautious='{{"email": "{cautious}", "password": "{cautious_password}"'
first="Authorization: Bearer $(curl -s $api/api/auth/login -H "$json" -d "$cautious}}" | get access_token)"
tokens=$(curl -s $api/api/auth/mfa/verify -H "$json" -H "$first" \\
    -d '{{"code": "'$(code {totp_secret})'", "trust_device": true, "device_name": "My terminal"}}')
theirs="Authorization: Bearer $(printf %s "$tokens" | get access_token)"
curl -s $api/api/user/mfa/status -H "$theirs"
curl -s $api/api/user/devices -H "$theirs"
# The device is trusted from now on: whoever has its token signs in there without a code.
curl -s $api/api/auth/login -H "$json" -d "$cautious"', "device_token": "'$(printf %s "$tokens" | get device_token)'"}}'

# A platform owner looks at all organizations.
platform="Authorization: Bearer $(curl -s $api/api/auth/login -H "$json" \\
    -d '{{"email": "{platform_owner}", "password": "{platform_owner_password}"}}' | get access_token)"
curl -s $api/api/platform/organizations -H "$platform"

# Everything that was seeded, another organization included: gatehouse demo --json. Each time makes new passwords and secrets.
# In a browser: {base_url}/app/sign-in leads to {base_url}/app/account, for everybody above.
"""


def as_walk(demo: Demo, base_url: str) -> str:
    """The same as commands to paste into a shell."""
    tenant = demo.first
    redirect_uri = tenant.web.service.redirect_uris[0]
    [cautious] = [who for who in tenant.end_users if who.totp_secret is not None]
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
        scim_token=tenant.scim_token,
        webhook_id=tenant.webhook.id,
        webhook_secret=tenant.webhook_secret,
        end_user_id=tenant.end_users[0].id,
        end_user=tenant.end_users[0].email,
        end_user_password=tenant.end_users[0].password,
        cautious=cautious.email,
        cautious_password=cautious.password,
        totp_secret=cautious.totp_secret,
        platform_owner=demo.platform_owner.email,
        platform_owner_password=demo.platform_owner.password,
    )
