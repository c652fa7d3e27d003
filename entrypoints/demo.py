"""What `gatehouse demo` prints: everything that there is to try, as JSON or as a walk with curl."""

from collections.abc import Sequence
from typing import Any, Final

from core.demo import Application, Credentials, Demo, Tenant, for_devices_alone


def as_json(demo: Demo, base_url: str) -> dict[str, Any]:
    """One object with all of it, secrets included."""
    return {
        "base_url": base_url,
        "platform_owner": {"email": demo.platform_owner.email, "password": demo.platform_owner.password},
        **_tenant(demo.first),
        "other_organization": _tenant(demo.other),
    }


def _tenant(tenant: Tenant) -> dict[str, Any]:
    organization = tenant.organization
    return {
        "organization": {"id": str(organization.id), "slug": organization.slug, "status": organization.status.value},
        "owner": _person(tenant.owner),
        "admin": _person(tenant.admin),
        "member": _person(tenant.member),
        "service": _application(tenant.web),
        "mobile_service": _application(tenant.mobile),
        "plan": {"id": str(tenant.plan.id), "billing_price_id": tenant.plan.billing_price_id},
        "api_key": tenant.api_key,
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

# A program of the service, with an API key that may do everything.
key='X-Api-Key: {api_key}'
curl -s $api/api/service/info -H "$key"
curl -s $api/api/service/users -H "$key"
curl -s $api/api/service/users -H "$key" -H "$json" -d '{{"email": "new@customer.{slug}.example"}}'
curl -s $api/api/service/subscriptions/{end_user_id} -H "$key"
curl -s $api/api/service/analytics -H "$key"

# A person signs in to the service; the application gets tokens that say what the person has there.
curl -s $api/api/auth/login -H "$json" -d '{{"email": "{end_user}", "password": "{end_user_password}",
    "org_slug": "{slug}", "service_slug": "{service}"}}'

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
    [cautious] = [who for who in tenant.end_users if who.totp_secret is not None]
    return WALK.format(
        base_url=base_url,
        organization=tenant.organization.name,
        slug=tenant.organization.slug,
        service=tenant.web.service.slug,
        owner=tenant.owner.email,
        owner_password=tenant.owner.password,
        api_key=tenant.api_key,
        end_user_id=tenant.end_users[0].id,
        end_user=tenant.end_users[0].email,
        end_user_password=tenant.end_users[0].password,
        cautious=cautious.email,
        cautious_password=cautious.password,
        totp_secret=cautious.totp_secret,
        platform_owner=demo.platform_owner.email,
        platform_owner_password=demo.platform_owner.password,
    )
