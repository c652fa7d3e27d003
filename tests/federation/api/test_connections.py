"""An organization's connections over the API."""

from collections.abc import Mapping
from typing import Any, Final

import pytest

from adapters.postgres.engine.pool import Pool
from core.federation.connections.model.connections import (
    MAX_CERTIFICATES,
    MAX_CONNECTIONS,
    ConnectionAboveOwn,
    ConnectionIdentity,
    ConnectionState,
    TooManyConnections,
    TooManyProviderCertificates,
)
from core.federation.connections.model.presets import PRESETS
from core.federation.connections.model.settings import OidcSettings, SamlSettings
from core.federation.saml.model.configuration import CertificateState
from core.kernel.causes import SYSTEM
from core.kernel.connections import PLATFORM_CONNECTIONS, ConnectionProtocol
from core.kernel.proofs import Method, Proof
from core.tenancy.model.members import MemberHasMoreRights
from tests.support.builders import Answer, Api, add_account, run_concurrently, run_sql
from tests.support.connections import LINK, add_connection
from tests.support.rows import NOW
from tests.support.saml import new_certificate
from tests.support.tenants import Tenant

OIDC: Final = {"issuer": "https://acme.okta.example", "client_id": "gatehouse"}
SWITCHES: Final = {"trusts_email": False, "trusts_second_factor": False, "clock_skew_seconds": 60}
SAML: Final = {"entity_id": "http://adfs.example/trust", "sso_url": "https://adfs.example/adfs/ls/"}


async def create(api: Api, acme: Tenant, **changes: object) -> Answer:
    body = {"slug": "okta", "name": "Okta", "oidc": OIDC, **changes}
    return await api.post(
        f"{acme.path}/connections", {name: value for name, value in body.items() if value is not None}, token=acme.token("admin")
    )


async def created(api: Api, acme: Tenant, **changes: object) -> Any:
    answer = await create(api, acme, **changes)
    assert answer.status == 201, answer.text
    return answer.json


async def events_of(pool: Pool, name: str) -> list[Mapping[str, Any]]:
    return [details for (details,) in await run_sql(pool, "select details from audit_log where action = %s order by created_at, id", name)]


async def test_a_new_connection_is_a_draft_with_the_mapping_of_its_preset(api: Api, acme: Tenant, pool: Pool) -> None:
    connection = await created(api, acme, preset="okta")
    assert (connection["state"], connection["protocol"], connection["preset"], connection["saml"]) == ("draft", "oidc", "okta", None)
    defaults = {"client_authentication": "client_secret_basic", "scopes": ["email", "profile", "groups"]}
    assert connection["oidc"] == {**OIDC, **defaults, "targets": [], **SWITCHES}
    assert connection["mapping"]["groups"] == "groups"
    assert (connection["keys"], connection["certificates"], connection["client_secret_set_at"]) == ([], [], None)
    assert connection["missing"] == ["client_secret"]
    base = f"http://gatehouse.test/auth/connections/{connection['id']}"
    assert connection["endpoints"] == {
        "start_url": f"{base}/start",
        "redirect_uri": f"{base}/callback",
        "jwks_uri": f"{base}/jwks.json",
        "post_logout_redirect_uri": f"{base}/signed-out",
        "backchannel_logout_uri": f"{base}/backchannel-logout",
        "entity_id": None,
        "acs_url": None,
        "slo_url": None,
        "metadata_url": None,
        "initiate_login_uri": f"{base}/initiate",
    }
    assert (await api.get(f"{acme.path}/connections/okta", token=acme.token("admin"))).json == connection
    saml = await created(api, acme, slug="saml", oidc=None, saml=SAML, mapping={"email": "mail"})
    assert (saml["protocol"], saml["oidc"], saml["mapping"]["email"]) == ("saml", None, "mail")
    assert saml["saml"]["name_id_format"].endswith(":persistent")
    assert saml["endpoints"]["acs_url"] == f"{saml['endpoints']['entity_id']}/acs"
    listed = (await api.get(f"{acme.path}/connections", token=acme.token("admin"))).json["connections"]
    assert [each["slug"] for each in listed] == ["okta", "saml"]
    [details] = [each for each in await events_of(pool, "connection.created") if each["slug"] == "okta"]
    assert (details["name"], details["preset"], details["settings"]["issuer"]) == ("Okta", "okta", OIDC["issuer"])


async def test_a_new_connection_has_the_settings_of_its_preset_that_the_request_leaves_out(api: Api, acme: Tenant) -> None:
    for name, preset in PRESETS.items():
        for protocol, values in preset.protocols.items():
            connection = await created(api, acme, slug=f"{name}-{protocol}", preset=name, **{"oidc": None, protocol: {}})
            expected: dict[str, object] = {"scopes": list(values.scopes)}
            if protocol is ConnectionProtocol.SAML:
                expected = {"name_id_format": values.name_id_format, "subject": values.subject}
            assert connection[protocol].items() >= expected.items(), name
    own = {"name_id_format": "persistent", "subject": None, "signs_requests": False}
    saml = (await created(api, acme, slug="own", preset="okta", oidc=None, saml=own))["saml"]
    assert (saml["name_id_format"].rpartition(":")[2], saml["subject"], saml["signs_requests"]) == ("persistent", None, False)
    assert (await created(api, acme, slug="scopes", preset="okta", oidc={"scopes": ["email"]}))["oidc"]["scopes"] == ["email"]


@pytest.mark.parametrize(
    "changes",
    [
        {"saml": SAML},
        {"oidc": None},
        {"preset": "unknown"},
        {"slug": "new"},
        {"oidc": {**OIDC, "issuer": "http://acme.example"}},
        {"oidc": {**OIDC, "client_authentication": "none"}},
        {"oidc": None, "saml": {**SAML, "name_id_format": "transient"}},
        {"oidc": None, "saml": {**SAML, "subject": "mail"}},
        {"mapping": {"email": " "}},
    ],
)
async def test_invalid_connections_are_refused(api: Api, acme: Tenant, changes: Mapping[str, object]) -> None:
    assert (await create(api, acme, **changes)).status == 400
    assert (await api.get(f"{acme.path}/connections", token=acme.token("admin"))).json == {"connections": []}


async def test_a_draft_says_what_it_needs(api: Api, acme: Tenant) -> None:
    token = acme.token("admin")
    for name, settings, missing in (
        ("oidc", {}, ["issuer", "client_id", "client_secret"]),
        ("oidc", {**OIDC, "client_authentication": "private_key_jwt"}, ["key"]),
        ("saml", {}, ["entity_id", "sso_url", "certificate", "key"]),
        ("saml", {**SAML, "signs_requests": False}, ["certificate"]),
    ):
        assert (await created(api, acme, **{"oidc": None, name: settings}))["missing"] == missing
        path = f"{acme.path}/connections/okta"
        await api.post(f"{path}/keys", {}, token=token)
        await api.post(f"{path}/certificates", {"certificate": (await new_certificate(NOW)).certificate}, token=token)
        left = [part for part in missing if part not in ("key", "certificate")]
        assert (await api.get(path, token=token)).json["missing"] == left
        await api.delete(path, token=token)


async def test_a_slug_is_taken_once_in_an_organization(api: Api, acme: Tenant, other_tenant: Tenant) -> None:
    await created(api, acme)
    assert (await create(api, acme)).status == 409
    await created(api, other_tenant)
    for slug in PLATFORM_CONNECTIONS:
        assert (await create(api, acme, slug=slug)).status == 400


async def test_twenty_connections_at_once_stay_within_the_limit(api: Api, acme: Tenant) -> None:
    for number in range(MAX_CONNECTIONS - 1):
        await add_connection(acme.ports.storage, acme.org, f"okta-{number}")

    async def add(number: int) -> int:
        return (await create(api, acme, slug=f"adfs-{number}")).status

    statuses = await run_concurrently(5, add)
    assert sorted(statuses) == [201, 409, 409, 409, 409]
    assert (await create(api, acme)).json["error"] == TooManyConnections.__doc__


async def test_changes_are_recorded_with_the_fields_that_changed(api: Api, acme: Tenant, pool: Pool) -> None:
    await created(api, acme)
    path, token = f"{acme.path}/connections/okta", acme.token("admin")
    body: dict[str, object] = {"name": "Acme", "oidc": {**OIDC, "client_id": "other"}, "mapping": {"groups": "roles"}}
    for _ in range(2):  # the second request changes nothing
        answer = await api.patch(path, body, token=token)
        assert (answer.status, answer.json["name"], answer.json["oidc"]["client_id"]) == (200, "Acme", "other")
    changes = {
        "name": {"old": "Okta", "new": "Acme"},
        "client_id": {"old": "gatehouse", "new": "other"},
        "groups": {"old": None, "new": "roles"},
    }
    assert [details["changes"] for details in await events_of(pool, "connection.updated")] == [changes]
    for refused, status in (({}, 400), ({"oidc": OIDC, "saml": SAML}, 400), ({"saml": SAML}, 409)):
        assert (await api.patch(path, refused, token=token)).status == status


async def test_the_issuer_is_fixed_from_the_first_activation(api: Api, acme: Tenant) -> None:
    await add_connection(acme.ports.storage, acme.org)
    path, token = f"{acme.path}/connections/okta", acme.token("admin")
    assert (await api.call("PUT", f"{path}/client-secret", {"client_secret": "a secret"}, token=token)).status == 204
    assert (await api.patch(path, {"oidc": {**OIDC, "issuer": "https://other.example"}}, token=token)).status == 409
    kept = {"issuer": "https://okta.example", "client_id": "other"}
    assert (await api.patch(path, {"oidc": kept}, token=token)).status == 200


async def test_a_connection_is_activated_when_nothing_is_missing(api: Api, acme: Tenant, pool: Pool) -> None:
    await created(api, acme)
    path, token = f"{acme.path}/connections/okta", acme.token("admin")
    refused = await api.post(f"{path}/activate", {}, token=token)
    assert (refused.status, "Client secret" in refused.json["error"]) == (400, True)
    await api.call("PUT", f"{path}/client-secret", {"client_secret": "a very secret text"}, token=token)
    for _ in range(2):  # the second time changes nothing
        assert (await api.post(f"{path}/activate", {}, token=token)).json["state"] == "active"
    assert (await api.patch(path, {"oidc": {**OIDC, "issuer": "https://other.example"}}, token=token)).status == 409
    for _ in range(2):
        assert (await api.post(f"{path}/deactivate", {}, token=token)).json["state"] == "inactive"
    for name in ("connection.activated", "connection.deactivated"):
        assert [each["slug"] for each in await events_of(pool, name)] == ["okta"]
    for number in range(MAX_CONNECTIONS - 1):
        await add_connection(acme.ports.storage, acme.org, f"okta-{number}")
    assert (await api.post(f"{path}/activate", {}, token=token)).json["state"] == "active", "all can be active"


@pytest.mark.parametrize("action", ["deactivate", "remove"])
async def test_the_end_of_a_connection_ends_its_sessions(api: Api, acme: Tenant, pool: Pool, action: str) -> None:
    okta = await add_connection(acme.ports.storage, acme.org)
    session_id = acme.sessions["member"].session_id
    user_id, path, token = acme.people["member"].id, f"{acme.path}/connections/okta", acme.token("admin")
    identity = ConnectionIdentity(
        org_id=acme.org, connection_id=okta.id, user_id=user_id, subject="4711", email=None, linked_at=NOW, last_used_at=NOW
    )
    proof = Proof(Method.CONNECTION, NOW, connection=okta.id, org=acme.org)
    async with acme.ports.storage.transaction(by=SYSTEM) as tx:
        await tx.connection_identities.add(identity)
        await tx.session_sign_ins.reauthenticate(session_id, user_id, (proof,))
    answer = await (api.post(f"{path}/deactivate", {}, token=token) if action == "deactivate" else api.delete(path, token=token))
    assert answer.status in (200, 204)
    assert await run_sql(pool, "select id from sessions where ended_at is not null") == [(session_id,)]


async def test_a_client_secret_is_stored_and_never_returned(api: Api, acme: Tenant, pool: Pool) -> None:
    await created(api, acme)
    path, token = f"{acme.path}/connections/okta", acme.token("admin")
    assert (await api.call("PUT", f"{path}/client-secret", {"client_secret": "a very secret text"}, token=token)).status == 204
    answer = await api.get(path, token=token)
    assert answer.json["client_secret_set_at"] is not None
    [details] = await events_of(pool, "connection.client_secret.set")
    assert "a very secret text" not in answer.text + str(details)
    async with acme.ports.storage.reading() as read:
        connection = await read.connections.by_slug(acme.org, "okta")
        assert connection is not None
        assert await read.connections.client_secret(acme.org, connection.id, OIDC["issuer"]) == "a very secret text"
    saml = await add_connection(acme.ports.storage, acme.org, "adfs", settings=SamlSettings())
    refused = await api.call("PUT", f"{acme.path}/connections/{saml.slug}/client-secret", {"client_secret": "another"}, token=token)
    assert (refused.status, refused.json["error"]) == (400, "Connections with SAML have no client secret.")


async def test_a_key_is_rotated_with_an_overlap(api: Api, acme: Tenant) -> None:
    await created(api, acme, oidc=None, saml=SAML)
    path, token = f"{acme.path}/connections/okta", acme.token("admin")
    assert (await api.post(f"{path}/keys/activate", {}, token=token)).status == 404
    states = [(await api.post(f"{path}/keys", {}, token=token)).json["state"] for _ in range(2)]
    assert states == ["active", "next"]
    assert (await api.post(f"{path}/keys", {}, token=token)).status == 409
    active, following = (await api.get(path, token=token)).json["keys"]
    activated = await api.post(f"{path}/keys/activate", {}, token=token)
    assert (activated.json["state"], activated.json["certificate"]) == ("active", following["certificate"])
    answer = await api.get(path, token=token)
    assert [each["state"] for each in answer.json["keys"]] == [CertificateState.ACTIVE, CertificateState.PREVIOUS]
    assert answer.json["keys"][1]["certificate"] == active["certificate"]
    assert "PRIVATE KEY" not in answer.text


async def test_certificates_of_the_identity_provider_are_added_and_removed(api: Api, acme: Tenant, pool: Pool) -> None:
    await created(api, acme, oidc=None, saml=SAML)
    path, token = f"{acme.path}/connections/okta", acme.token("admin")
    pem = (await new_certificate(NOW)).certificate
    bare = "".join(line for line in pem.splitlines() if not line.startswith("-----"))
    added = await api.post(f"{path}/certificates", {"certificate": bare}, token=token)
    assert (added.status, added.json["certificate"]) == (201, pem)
    assert (await api.post(f"{path}/certificates", {"certificate": pem}, token=token)).status == 409
    for wrong in ("", "no certificate", pem + pem, (await new_certificate(NOW)).private_key().decode()):
        assert (await api.post(f"{path}/certificates", {"certificate": wrong}, token=token)).status == 400
    [listed] = (await api.get(path, token=token)).json["certificates"]
    assert listed == added.json
    insert = """
        insert into connection_certificates (org_id, connection_id, fingerprint, certificate, valid_from, valid_until, source, is_active,
                                             added_at)
        select org_id, connection_id, n::text, certificate, valid_from, valid_until, source, is_active, added_at
        from connection_certificates, generate_series(2, %s) n"""
    await run_sql(pool, insert, MAX_CERTIFICATES)
    other = (await new_certificate(NOW, "other")).certificate
    full = await api.post(f"{path}/certificates", {"certificate": other}, token=token)
    assert (full.status, full.json["error"]) == (409, TooManyProviderCertificates.__doc__)
    for status in (204, 404):
        assert (await api.delete(f"{path}/certificates/{listed['fingerprint']}", token=token)).status == status
    assert [each["fingerprint"] for each in await events_of(pool, "connection.certificate.removed")] == [listed["fingerprint"]]


async def test_a_saml_connection_trusts_only_keys_of_members_with_power_over_its_people(api: Api, acme: Tenant, pool: Pool) -> None:
    """After an activation, the holder of a trusted key could sign in as any of them.

    `test_connection_rights.py` tests active connections.
    """
    settings = SamlSettings(entity_id=SAML["entity_id"], sso_url=SAML["sso_url"])
    adfs = await add_connection(acme.ports.storage, acme.org, "adfs", settings=settings, state=ConnectionState.INACTIVE)
    role = {"slug": "integrator", "name": "Integrator", "capabilities": ["integrations.manage"]}
    assert (await api.post(f"{acme.path}/roles", role, token=acme.token("owner"))).status == 201
    assert (await acme.set_role("owner", "member", "integrator")).status == 200
    path, pem = f"{acme.path}/connections/adfs", (await new_certificate(NOW)).certificate
    await run_sql(pool, LINK, acme.org, adfs.id, acme.people["member"].id, "1")
    assert (await api.post(f"{path}/certificates", {"certificate": pem}, token=acme.token("member"))).status == 201
    await run_sql(pool, LINK, acme.org, adfs.id, acme.people["admin"].id, "2")
    other = (await new_certificate(NOW, "other")).certificate
    changed = {"saml": {**SAML, "metadata_url": "https://adfs.example/metadata"}}
    for answer in (
        await api.post(f"{path}/certificates", {"certificate": other}, token=acme.token("member")),
        await api.patch(path, changed, token=acme.token("member")),
    ):
        assert (answer.status, answer.json["error"]) == (403, ConnectionAboveOwn.__doc__)
    assert (await api.patch(path, {"name": "Acme"}, token=acme.token("member"))).status == 200
    assert (await api.post(f"{path}/certificates", {"certificate": other}, token=acme.token("admin"))).status == 201
    await run_sql(pool, LINK, acme.org, adfs.id, acme.people["owner"].id, "3")
    third = {"certificate": (await new_certificate(NOW, "third")).certificate}
    assert (await api.post(f"{path}/certificates", third, token=acme.token("admin"))).status == 403
    assert (await api.post(f"{path}/certificates", third, token=acme.token("owner"))).status == 201


async def test_a_member_unlinks_no_member_with_further_rights(api: Api, acme: Tenant, pool: Pool) -> None:
    """With SAML, the connection could trust another key then, with which its holder signs in as this member after an activation."""
    role = {"slug": "integrator", "name": "Integrator", "capabilities": ["integrations.manage"]}
    assert (await api.post(f"{acme.path}/roles", role, token=acme.token("owner"))).status == 201
    assert (await acme.set_role("owner", "member", "integrator")).status == 200
    user = await add_account(acme.ports, "eve@acme.example")
    acme.people["user"] = user  # an application's user, and no member
    expected = {
        "member": {"owner": 403, "admin": 403, "member": 204, "user": 204},
        "admin": {"owner": 403, "admin": 204, "member": 204, "user": 204},
        "owner": dict.fromkeys(("owner", "admin", "member", "user"), 204),
    }
    for slug, settings, state in (("adfs", SamlSettings(), ConnectionState.ACTIVE), ("okta", OidcSettings(), ConnectionState.INACTIVE)):
        connection = await add_connection(acme.ports.storage, acme.org, slug, settings=settings, state=state)
        people = f"{acme.path}/connections/{slug}/people"
        for caller, statuses in expected.items():
            for name in statuses:
                await run_sql(pool, LINK, acme.org, connection.id, acme.people[name].id, name)
            answers = {name: await api.delete(f"{people}/{acme.id(name)}", token=acme.token(caller)) for name in statuses}
            assert {name: answer.status for name, answer in answers.items()} == statuses, (slug, caller)
            for name, answer in answers.items():
                assert answer.status == 204 or answer.json["error"] == MemberHasMoreRights.__doc__, (slug, caller, name)
            kept = {acme.people[name].id for name, status in statuses.items() if status == 403}
            linked = await run_sql(pool, "select user_id from connection_identities where connection_id = %s", connection.id)
            assert {user_id for (user_id,) in linked} == kept, (slug, caller)
        assert (await api.delete(f"{people}/{acme.id('admin')}", token=acme.token("member"))).status == 404, (
            "the connection knows no admin now"
        )


async def test_an_active_connection_keeps_what_its_users_need(api: Api, acme: Tenant) -> None:
    settings = SamlSettings(entity_id=SAML["entity_id"], sso_url=SAML["sso_url"], signs_requests=False)
    await add_connection(acme.ports.storage, acme.org, "adfs", settings=settings)
    path, token = f"{acme.path}/connections/adfs", acme.token("admin")
    added = await api.post(f"{path}/certificates", {"certificate": (await new_certificate(NOW)).certificate}, token=token)
    certificate = f"{path}/certificates/{added.json['fingerprint']}"
    assert (await api.post(f"{path}/activate", {}, token=token)).status == 200
    sent = {"entity_id": SAML["entity_id"], "sso_url": SAML["sso_url"], "signs_requests": False}
    for answer, missing in (
        (await api.delete(certificate, token=token), "Certificate of the identity provider"),
        (await api.patch(path, {"saml": sent | {"sso_url": ""}}, token=token), "Sign-in URL"),
        (await api.patch(path, {"saml": sent | {"signs_requests": True}}, token=token), "Key of this connection"),
    ):
        assert answer.status == 400
        assert answer.json["error"] == f"An active connection needs more values than this one has. Set these first: {missing}."
    assert (await api.get(path, token=token)).json["missing"] == []
    assert (await api.post(f"{path}/deactivate", {}, token=token)).status == 200
    assert (await api.delete(certificate, token=token)).status == 204


async def test_a_removed_connection_is_gone(api: Api, acme: Tenant, other_tenant: Tenant) -> None:
    await created(api, acme)
    await created(api, other_tenant)
    path, token = f"{acme.path}/connections/okta", acme.token("admin")
    for status in (204, 404):
        assert (await api.delete(path, token=token)).status == status
    for answer in (
        await api.get(path, token=token),
        await api.patch(path, {"name": "Acme"}, token=token),
        await api.call("PUT", f"{path}/client-secret", {"client_secret": "x"}, token=token),
        await api.post(f"{path}/keys", {}, token=token),
        await api.post(f"{path}/certificates", {"certificate": "x"}, token=token),
    ):
        assert answer.status == 404
    assert (await api.get(f"{other_tenant.path}/connections/okta", token=other_tenant.token("admin"))).status == 200


@pytest.mark.slow
async def test_the_values_of_each_preset_are_valid(api: Api, acme: Tenant) -> None:
    for name, preset in PRESETS.items():
        for protocol, values in preset.protocols.items():
            oidc = {"issuer": values.identifier, "client_id": "gatehouse", "scopes": list(values.scopes)}
            saml = {
                "entity_id": values.identifier,
                "sso_url": values.sso_url,
                "name_id_format": values.name_id_format,
                "subject": values.subject,
            }
            settings = {"oidc": oidc} if protocol is ConnectionProtocol.OIDC else {"oidc": None, "saml": saml}
            assert (await created(api, acme, preset=name, **settings))["mapping"] == values.mapping.document
            assert (await api.delete(f"{acme.path}/connections/okta", token=acme.token("admin"))).status == 204
