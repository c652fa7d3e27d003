"""Service account credentials: creation, rotation and revocation."""

from datetime import timedelta
from typing import Any
from uuid import UUID, uuid4

import pytest

from core.applications.model.client_settings import PrivateKeySent, thumbprint
from core.kernel.errors import ProgramStopped
from core.kernel.outbound import KeyPortNotAllowed
from core.kernel.scannable_secrets import CREDENTIAL_PREFIX, is_well_formed
from core.kernel.values import digest, rfc3339
from core.programs.model.credentials import (
    MAX_FEDERATED,
    AudienceInvalid,
    CredentialExpiryInvalid,
    CredentialFieldsInvalid,
    CredentialKeyInvalid,
    CredentialNotFound,
    IssuerInvalid,
    SubjectPatternInvalid,
    TooManyCredentials,
    TooManyTrusts,
)
from tests.fakes.outside import FakeClock
from tests.programs.service_accounts import PEM_KEY, PIPELINE, add_robot, create, sign_token, try_add_credential
from tests.support.builders import BASE_URL, Answer, run_concurrently, run_sql
from tests.support.tenants import Tenant

KEY: dict[str, Any] = {"kind": "key", "public_key": PEM_KEY}


def message(answer: Answer) -> tuple[int, str]:
    return answer.status, answer.json["error"]


async def revoke(tenant: Tenant, account: str, credential_id: str, by: str = "owner") -> Answer:
    return await tenant.api.delete(f"{account}/credentials/{credential_id}", token=tenant.token(by))


async def test_a_secret_is_returned_once_and_stored_as_a_hash(acme: Tenant) -> None:
    account = await create(acme)
    answer = await try_add_credential(acme, account, "admin", expires_at="2026-06-01T00:00:00Z")
    assert (answer.status, answer.headers["Cache-Control"]) == (201, "no-store")
    credential = answer.json
    secret = credential.pop("secret")
    assert is_well_formed(secret, CREDENTIAL_PREFIX)
    assert credential == {
        "id": credential["id"],
        "kind": "secret",
        "name": "Main",
        "hint": secret[:11],
        "issuer": None,
        "audience": None,
        "subject": None,
        "expires_at": "2026-06-01T00:00:00Z",
        "created_by": acme.id("admin"),
        "created_at": "2026-03-14T15:09:26.535897Z",
        "last_used_at": None,
    }
    assert await run_sql(acme.pool, "select secret_hash from credentials") == [(digest(secret),)]
    listed = await acme.api.get(f"{account}/credentials", token=acme.token("admin"))
    assert listed.json == {"credentials": [credential]}
    assert (await revoke(acme, account, credential["id"], "admin")).status == 204
    assert message(await revoke(acme, account, credential["id"])) == (404, CredentialNotFound.__doc__)
    details = {
        "name": "Robot",
        "credential_id": credential["id"],
        "credential_name": "Main",
        "kind": "secret",
        "expires_at": "2026-06-01T00:00:00Z",
        "hint": secret[:11],
    }
    account_id = account.rpartition("/")[2]
    assert (await acme.recorded())[1:] == [
        (
            f"service_account.credential.{verb}",
            "service_account",
            account_id,
            acme.people["admin"].id,
            details,
        )
        for verb in ("created", "revoked")
    ]


async def test_a_key_and_a_trust_have_no_secret(acme: Tenant) -> None:
    account = await create(acme)
    key = await try_add_credential(acme, account, **KEY)
    assert (key.status, key.json["hint"], "secret" in key.json) == (201, thumbprint(PEM_KEY), False)
    trust = await try_add_credential(acme, account, **PIPELINE)
    assert trust.status == 201
    assert {name: trust.json[name] for name in ("issuer", "audience", "subject", "hint")} == {
        "issuer": PIPELINE["issuer"],
        "audience": BASE_URL,
        "subject": PIPELINE["subject"],
        "hint": None,
    }
    assert "secret" not in trust.json


async def test_at_most_two_secrets_and_keys_are_live(acme: Tenant, clock: FakeClock) -> None:
    account = await create(acme)
    first = (await try_add_credential(acme, account)).json["id"]
    soon = rfc3339(clock.now() + timedelta(hours=1))
    assert (await try_add_credential(acme, account, **KEY, expires_at=soon)).status == 201
    for fields in ({}, KEY):
        assert message(await try_add_credential(acme, account, **fields)) == (400, TooManyCredentials.__doc__)
    assert (await try_add_credential(acme, account, **PIPELINE)).status == 201
    await revoke(acme, account, first)
    assert (await try_add_credential(acme, account)).status == 201
    assert (await try_add_credential(acme, account)).status == 400
    clock.advance(timedelta(hours=1))
    await acme.sign_in("owner")
    assert (await try_add_credential(acme, account)).status == 201


async def test_twenty_rotations_at_once_leave_two_secrets(acme: Tenant) -> None:
    account = await create(acme)
    answers = await run_concurrently(20, lambda _: try_add_credential(acme, account))
    assert sorted(answer.status for answer in answers) == [201] * 2 + [400] * 18
    assert await run_sql(acme.pool, "select count(*) from credentials") == [(2,)]


async def test_the_number_of_trusts_is_limited(acme: Tenant) -> None:
    account = await create(acme)
    await try_add_credential(acme, account, **PIPELINE)
    await run_sql(
        acme.pool,
        """
        insert into credentials (id, client_id, org_id, kind, name, issuer, audience, subject, created_by, created_at)
        select gen_random_uuid(), client_id, org_id, kind, name, issuer, audience, subject, created_by, created_at
        from credentials, generate_series(2, %s)""",
        MAX_FEDERATED,
    )
    assert message(await try_add_credential(acme, account, **PIPELINE)) == (400, TooManyTrusts.__doc__)


@pytest.mark.parametrize(
    ("fields", "refusal"),
    [
        ({"kind": "key"}, CredentialFieldsInvalid),
        ({"public_key": PEM_KEY}, CredentialFieldsInvalid),
        ({**KEY, "issuer": PIPELINE["issuer"], "subject": PIPELINE["subject"]}, CredentialFieldsInvalid),
        ({"kind": "federated"}, CredentialFieldsInvalid),
        ({**KEY, "public_key": {**PEM_KEY, "d": "nWGxne_9WmC6hEr0kuwsxERJxWl7MmkZcDusAxyuf2A"}}, PrivateKeySent),
        ({**KEY, "public_key": {"kty": "oct", "k": "c2VjcmV0"}}, PrivateKeySent),
        ({**KEY, "public_key": {"kty": "OKP", "crv": "Ed25519"}}, CredentialKeyInvalid),
        ({**KEY, "public_key": {"kty": "OKP", "crv": "Ed25519", "x": "short"}}, CredentialKeyInvalid),
        ({**KEY, "public_key": {**PEM_KEY, "kid": "a\0"}}, CredentialKeyInvalid),
        ({**KEY, "public_key": {**PEM_KEY, "kid": "a" * 256}}, CredentialKeyInvalid),
        ({**KEY, "public_key": {**PEM_KEY, "kid": "\u200b"}}, CredentialKeyInvalid),
        ({"expires_at": "2026-03-14T15:09:26Z"}, CredentialExpiryInvalid),
        ({"expires_at": "2036-03-14T15:09:26Z"}, CredentialExpiryInvalid),
        ({**PIPELINE, "issuer": "http://issuer.example"}, IssuerInvalid),
        ({**PIPELINE, "issuer": "https://issuer.example/?a=b"}, IssuerInvalid),
        ({**PIPELINE, "issuer": BASE_URL.replace("http:", "https:")}, IssuerInvalid),
        *(({**PIPELINE, "issuer": f"https://issuer.example:{port}"}, KeyPortNotAllowed) for port in (22, 25, 80, 444, 8443)),
        ({**PIPELINE, "audience": "a" * 256}, AudienceInvalid),
        ({**PIPELINE, "subject": "*"}, SubjectPatternInvalid),
        ({**PIPELINE, "subject": ""}, SubjectPatternInvalid),
        ({**PIPELINE, "subject": "repo:*/shop:ref:refs/heads/main"}, SubjectPatternInvalid),
        ({**PIPELINE, "subject": "repo:acme/shop:ref:refs/heads/v*"}, SubjectPatternInvalid),
    ],
)
async def test_credentials_that_cannot_be_are_refused(acme: Tenant, fields: dict[str, Any], refusal: type[Exception]) -> None:
    answer = await try_add_credential(acme, await create(acme), **fields)
    assert message(answer) == (400, refusal.__doc__)
    assert await run_sql(acme.pool, "select count(*) from credentials") == [(0,)]


async def test_the_refusal_of_an_issuer_names_the_broken_rule(acme: Tenant) -> None:
    answer = await try_add_credential(acme, await create(acme), **{**PIPELINE, "issuer": "https://user@issuer.example"})
    assert message(answer) == (400, "The issuer is not allowed: it has a user name. Remove everything before the @, and the @.")


async def test_tokens_of_a_revoked_or_expired_credential_are_refused_at_once(acme: Tenant, clock: FakeClock) -> None:
    robot = await add_robot(acme)
    spare = await try_add_credential(acme, robot.path, expires_at=rfc3339(clock.now() + timedelta(minutes=1)))
    token = sign_token(acme.ports, acme, robot.id, UUID(spare.json["id"]))
    assert (await robot.call("GET", "/members")).status == 200
    assert (await revoke(acme, robot.path, str(robot.credential_id))).status == 204
    assert message(await robot.call("GET", "/members")) == (401, ProgramStopped.__doc__)
    assert (await acme.api.get(f"{acme.path}/members", token=token)).status == 200
    clock.advance(timedelta(minutes=1))
    assert (await acme.api.get(f"{acme.path}/members", token=token)).status == 401


async def test_a_credential_of_another_account_is_not_found(acme: Tenant) -> None:
    robot, other = await add_robot(acme), await create(acme)
    for credential_id in (str(robot.credential_id), str(uuid4()), "nonsense"):
        assert message(await revoke(acme, other, credential_id)) == (404, CredentialNotFound.__doc__)
    token = sign_token(acme.ports, acme, UUID(other.rpartition("/")[2]), robot.credential_id)
    assert (await acme.api.get(f"{acme.path}/members", token=token)).status == 401
    assert (await robot.call("GET", "/members")).status == 200
