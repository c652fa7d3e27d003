"""The passkeys' host, and the pages and native applications that may use passkeys."""

from base64 import urlsafe_b64encode
from typing import Any

import pytest
from quart_trio import QuartTrio

from adapters.postgres.engine.pool import Pool
from core.accounts import relying_party
from core.kernel.policy import AndroidApp, IosApp, Policy
from ports import Ports
from tests.support.builders import BASE_URL, Api, run_sql
from tests.support.direct import change_ports
from tests.support.passkeys.users import RP_ID, PasskeyUser, sign_in_with_passkey

FRONTEND = "https://app.example.org"
DIGEST, SECOND_DIGEST = bytes(range(32)), bytes(range(32, 64))
ANDROID = AndroidApp("com.example.app", (DIGEST, SECOND_DIGEST))
IOS = IosApp("ABCDE12345.com.example.app")
RELATED, APPLE, ANDROID_FILE = "/.well-known/webauthn", "/.well-known/apple-app-site-association", "/.well-known/assetlinks.json"


def of_android(digest: bytes) -> str:
    return f"android:apk-key-hash:{urlsafe_b64encode(digest).decode().rstrip('=')}"


async def is_accepted(holder: PasskeyUser, origin: str) -> tuple[bool, bool]:
    """Return whether a page or application from this origin adds a passkey, and signs in with it."""
    holder.authenticator.credentials.clear()
    holder.authenticator.origin = origin
    added = await holder.send(holder.authenticator.create(await holder.options()))
    if added.status != 201:
        assert added.status == 400
        holder.authenticator.credentials.clear()
        holder.authenticator.origin = BASE_URL
        await holder.add()
        holder.authenticator.origin = origin
    return added.status == 201, (await sign_in_with_passkey(holder.api, holder.authenticator)).status == 200


@pytest.mark.slow
@pytest.mark.parametrize(
    ("policy", "accepted"),
    [
        ({}, set()),
        ({"frontend_url": f"{FRONTEND}/console"}, {FRONTEND}),
        ({"native_apps": (ANDROID,)}, {of_android(DIGEST), of_android(SECOND_DIGEST)}),
        ({"native_apps": (IOS,)}, {f"https://{RP_ID}"}),
    ],
    ids=["none", "frontend", "Android", "iOS"],
)
async def test_only_listed_applications_and_the_frontend_use_passkeys(
    app: QuartTrio, holder: PasskeyUser, policy: dict[str, Any], accepted: set[str]
) -> None:
    change_ports(app, policy=Policy(**policy))
    origins = [FRONTEND, "https://app.example.org:8443", of_android(DIGEST), of_android(SECOND_DIGEST), of_android(b"x" * 32)]
    for origin in [*origins, of_android(DIGEST) + "=", f"https://{RP_ID}", "ios:bundle-id:com.example.app", BASE_URL]:
        expected = origin in {*accepted, BASE_URL}
        assert (origin, await is_accepted(holder, origin)) == (origin, (expected, expected))


async def test_the_files_name_what_the_operator_lists_and_nothing_else(app: QuartTrio, api: Api) -> None:
    assert (await api.get(RELATED)).json == {"origins": [BASE_URL]}
    assert [(await api.get(path)).status for path in (APPLE, ANDROID_FILE)] == [404, 404]
    change_ports(app, policy=Policy(frontend_url=f"{FRONTEND}/console", native_apps=(IOS, ANDROID)))
    related, apple, android = [await api.get(path) for path in (RELATED, APPLE, ANDROID_FILE)]
    assert related.json == {"origins": [BASE_URL, FRONTEND]}
    assert apple.json == {"webcredentials": {"apps": ["ABCDE12345.com.example.app"]}}
    assert android.json == [
        {
            "relation": ["delegate_permission/common.get_login_creds", "delegate_permission/common.handle_all_urls"],
            "target": {
                "namespace": "android_app",
                "package_name": "com.example.app",
                "sha256_cert_fingerprints": [
                    ":".join(f"{byte:02X}" for byte in DIGEST),
                    ":".join(f"{byte:02X}" for byte in SECOND_DIGEST),
                ],
            },
        }
    ]
    for answer in (related, apple, android):
        assert (answer.headers["content-type"], answer.headers["cache-control"]) == ("application/json", "public, max-age=300")


async def test_the_host_of_the_setting_is_stored_and_stays(app: QuartTrio, holder: PasskeyUser, pool: Pool) -> None:
    """Passkeys for the earlier host stay, for a change back."""
    await holder.add()
    change_ports(app, policy=Policy(passkey_rp_id="test"))
    with pytest.raises(AssertionError, match="NotAllowedError"):
        await sign_in_with_passkey(holder.api, holder.authenticator)
    await holder.add()
    assert (await sign_in_with_passkey(holder.api, holder.authenticator)).status == 200
    assert await run_sql(pool, "select rp_id from issuer") == [("test",)]
    change_ports(app, policy=Policy())
    assert (await holder.options())["rp"]["id"] == "test"
    assert {passkey["rp_id"] for passkey in await holder.listed()} == {RP_ID, "test"}


async def test_operators_are_warned_about_passkeys_of_another_host(holder: PasskeyUser, ports: Ports, pool: Pool) -> None:
    await holder.add()
    assert await relying_party.find_foreign_host(ports) is None
    for table in ("passkeys", "issuer"):
        await run_sql(pool, f"update {table} set rp_id = 'old.test'")  # noqa: S608  (a name)
    expected = f"Passkeys are for old.test. They work at {BASE_URL} only if https://old.test/.well-known/webauthn lists these."
    assert await relying_party.find_foreign_host(ports) == expected
