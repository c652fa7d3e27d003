"""Encrypting all encrypted columns under a new key."""

import json
from dataclasses import replace

import pytest

from adapters.crypto import AesVault
from adapters.postgres.authentication import flows, identities
from adapters.postgres.authentication.oauth_credentials import name_of, secret_context
from adapters.postgres.billing import facts as billing_facts
from adapters.postgres.engine.pool import Pool
from adapters.postgres.eventing import webhooks
from adapters.postgres.federation.connections.logins import secret_context as secret_context_of_login
from adapters.postgres.sealed_columns import COLUMNS
from adapters.postgres.storage import Postgres
from core.authentication.model.identities import ServiceOAuthCredentials
from core.authentication.model.tokens import SigningKey
from core.federation.saml.model.configuration import CertificateState
from core.kernel.causes import SYSTEM
from core.kernel.connections import PLATFORM_CONNECTIONS
from core.kernel.values import new_id
from core.maintenance import housekeeping
from core.maintenance.model import housekeeping as model_housekeeping
from core.maintenance.model.housekeeping import SealedColumn
from ports import Ports
from tests.fakes.outside import FakeClock
from tests.support.builders import add_organization, mail_server, run_sql
from tests.support.connections import add_login, make_connection
from tests.support.rows import DAY, HOUR, NOW, SECOND, account, add, mail
from tests.support.saml import new_certificate
from tests.support.services import add_service
from tests.support.siem import make_sink
from tests.support.webhooks import add_webhook

TOKENS = {b"access": identities.access_token_context, b"refresh": identities.refresh_token_context}


async def test_every_encrypted_value_is_encrypted_under_the_new_key(
    ports: Ports, storage: Postgres, pool: Pool, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(model_housekeeping, "BATCH", 3)
    old, new = ("old", bytes(range(32))), ("new", bytes(range(32, 64)))
    before, both, after = [replace(ports, storage=Postgres(pool, AesVault(keys), clock)) for keys in ([old], [new, old], [new])]
    await run_sql(pool, "delete from signing_keys")
    mails = [mail() for _ in range(8)]
    orgs = [await add_organization(pool, f"org-{number}") for number in range(5)]
    services, providers = [await add_service(pool, orgs[0], f"service-{number}") for number in range(2)], [*PLATFORM_CONNECTIONS] * 2
    webhook_secrets = [f"whsec_{number}" for number in range(5)]
    hook = await add_webhook(before, orgs[0], "https://hooks.example/in", secret=webhook_secrets[0])
    async with before.storage.transaction(by=SYSTEM) as tx:
        for number in range(4):
            await tx.signing_keys.add(SigningKey(f"key {number}", b"pem %d" % number, NOW + number * SECOND, None))
            await tx.signing_keys.retire_all(NOW + DAY)
        for number, one in enumerate(mails):
            await tx.email_queue.add(one)
            if number != 5:
                await tx.email_queue.save_token(one, f"token {number}", NOW)
        for number, org in enumerate(orgs):
            await tx.smtp.put(mail_server(org, password=f"password {number}" if number else None), NOW)
            await tx.siem.put(new_id(), make_sink(org, token=f"token-{number}"), NOW)
        for number, provider in enumerate(providers):
            await tx.oauth_credentials.put(orgs[0], services[number // 3], ServiceOAuthCredentials(provider, "id", NOW), f"secret {number}")
        certificates = [await new_certificate(NOW) for _ in services]
        for service, certificate in zip(services, certificates, strict=True):
            await tx.saml.add_certificate(orgs[0], service, certificate)
        connections = [make_connection(orgs[0], f"okta-{number}") for number in range(2)]
        for connection, key in zip(connections, certificates, strict=True):
            await tx.connections.add(connection)
            await tx.connections.save_client_secret(orgs[0], connection.id, f"secret of {connection.slug}", NOW)
            await tx.connection_keys.add(orgs[0], connection.id, replace(key, id=new_id()), CertificateState.ACTIVE)
        for secret in webhook_secrets[1:]:
            await tx.webhooks.rotate(hook, secret, NOW + DAY)
        people = [account(f"person-{number}@example.com") for number in range(4)]
        for number, person in enumerate(people):
            await tx.accounts.add(person)
            await tx.mfa.save_pending_secret(person.id, f"SECRET {number}", NOW)
        for number in range(4):
            facts = await tx.billing.lock_facts(f"sub_{number}", NOW)
            await tx.billing.save_facts(facts.with_action(NOW, f"page {number}" if number else None), NOW, check_at=None)
    user, names = (await add(storage, account())).id, [new_id() for _ in PLATFORM_CONNECTIONS]
    for name, provider in zip(names, PLATFORM_CONNECTIONS, strict=True):
        sealed = [
            AesVault([old]).seal(b"%s of %s" % (kind, provider.encode()), secret_context(str(name)))
            for kind, secret_context in TOKENS.items()
        ]
        insert = """
            insert into identities (id, user_id, provider, provider_user_id, linked_at, access_token, refresh_token)
            values (%s, %s, %s, '1', %s, %s, %s)"""
        await run_sql(pool, insert, name, user, provider, NOW, *sealed)
        sealed = [AesVault([old]).seal(b"waits", context(name)) for context in (flows.identity_context, flows.code_context)]
        insert = """
            insert into sign_in_flows (id, target, request, wants_fresh, keeps_trust, proofs, begun_at, expires_at, identity,
                                       challenge_code)
            values (%s, 'page', '', false, true, '[]', %s, 'infinity', %s, %s)"""
        await run_sql(pool, insert, name, NOW, *sealed)
    logins = [await add_login(before.storage, connection, user, logout={"id_token": connection.slug}) for connection in connections]
    async with both.storage.transaction(by=SYSTEM) as tx:
        await tx.email_queue.save_token(mails[0], "already new", NOW)
    assert await housekeeping.reencrypt(both) == 2 + 4 + 6 + 4 + 5 + 6 + 2 + 2 + 2 + 3 + 3 + 3 + 3 + 4 + 5 + 3
    assert await housekeeping.reencrypt(both) == 0
    assert await housekeeping.reencrypt(after) == 0
    async with after.storage.reading() as read:
        assert [key.private_key for key in await read.signing_keys.live(NOW)] == [b"pem 3", b"pem 2", b"pem 1", b"pem 0"]
        servers = [await read.smtp.server(org) for org in orgs]
        assert [server and server.password for server in servers] == [None, "password 1", "password 2", "password 3", "password 4"]
        sinks = [await read.siem.sink(org) for org in orgs]
        assert [sink and sink.token for sink in sinks] == [f"token-{number}" for number in range(5)]
        assert [await read.saml.certificate(orgs[0], service) for service in services] == certificates
        secrets_of_connections = [
            await read.connections.client_secret(orgs[0], connection.id, f"https://{connection.slug}.example") for connection in connections
        ]
        assert secrets_of_connections == ["secret of okta-0", "secret of okta-1"]
        for connection, certificate in zip(connections, certificates, strict=True):
            keys = await read.connection_keys.of_connection(orgs[0], connection.id, NOW)
            assert keys[CertificateState.ACTIVE].private_key() == certificate.private_key()
        factors = [await read.mfa.enrollment(person.id) for person in people]
        assert [factor and factor.secret for factor in factors] == [f"SECRET {number}" for number in range(4)]
    vault = AesVault([new])
    credentials = "select x.service_id, c.slug, x.client_secret from service_connections x join connections c on c.id = x.connection_id"
    rows = await run_sql(pool, credentials)
    secrets = {(row[0], row[1]): vault.open(row[2], secret_context(name_of(row[0], row[1]))) for row in rows}
    assert secrets == {(services[number // 3], provider): b"secret %d" % number for number, provider in enumerate(providers)}
    sealed_secrets = "select secret from webhooks union all select secret from former_webhook_secrets"
    assert {vault.open(value, webhooks.secret_context(hook.id)) for (value,) in await run_sql(pool, sealed_secrets)} == {
        one.encode() for one in webhook_secrets
    }
    for login in logins:
        [(value,)] = await run_sql(pool, "select logout from connection_logins where id = %s", login.id)
        assert json.loads(vault.open(value, secret_context_of_login(login.id))) == login.logout
    for row in await run_sql(pool, "select id, provider, access_token, refresh_token from identities"):
        values = [vault.open(value, secret_context(str(row[0]))) for value, secret_context in zip(row[2:], TOKENS.values(), strict=True)]
        assert values == [b"%s of %s" % (kind, row[1].encode()) for kind in TOKENS]
    for name, *values in await run_sql(pool, "select id, identity, challenge_code from sign_in_flows"):
        contexts = (flows.identity_context, flows.code_context)
        assert [vault.open(value, context(name)) for value, context in zip(values, contexts, strict=True)] == [b"waits"] * 2
    pages = await run_sql(pool, "select provider_subscription_id, action_page from billing_facts where action_page is not null")
    assert {id_: vault.open(page, billing_facts.action_page_context(id_)) for id_, page in pages} == {
        f"sub_{number}": b"page %d" % number for number in (1, 2, 3)
    }
    async with after.storage.transaction(by=SYSTEM) as tx:
        tokens = {email.id: email.token for email in await tx.email_queue.claim(NOW, NOW + HOUR, 100)}
    expected = {one.id: f"token {number}" for number, one in enumerate(mails)}
    assert tokens == {**expected, mails[0].id: "already new", mails[5].id: None}


async def test_every_column_of_bytes_is_known(pool: Pool) -> None:
    """A new bytes column is either encrypted, and handled by `keys reencrypt`, or listed here."""
    columns = await run_sql(
        pool,
        "select table_name::text, column_name::text from information_schema.columns where table_schema = 'public' and data_type = 'bytea'",
    )
    not_encrypted = {
        *(("refresh_tokens", "token_hash"), ("one_time_tokens", "token_hash"), ("guesses", "subject"), ("invitations", "token_hash")),
        *(("invitations", "inviter_token_hash"), ("email_changes", "undo_token_hash"), ("sent_forms", "form_hash")),
        ("security_notices", "undo_token_hash"),
        *(("services", "client_secret_hash"), ("services", "former_secret_hash"), ("api_keys", "key_hash"), ("scim_tokens", "token_hash")),
        ("registration_tokens", "token_hash"),
        *(("setup_links", f"{name}_hash") for name in ("token", "code", "browser")),
        *(("setup_links", "code_salt"), ("setup_proposals", "token_hash")),
        *(("sessions", "browser_hash"), ("devices", "client_hash"), ("devices", "trust_hash")),
        *(("backup_codes", "code_hash"), ("passkeys", "credential_id"), ("passkeys", "public_key")),
        *(("former_passkeys", "credential_id"), ("former_passkeys", "public_key"), ("users", "passkey_handle")),
        ("users", "backup_codes_salt"),
        *(("account_recoveries", "browser_hash"), ("account_recoveries", "code_salt"), ("account_recoveries", "code_hash")),
        *(("used_passkey_challenges", "challenge_hash"), ("used_provider_messages", "message_hash")),
        ("connection_logins", "sign_out_hash"),
        ("sign_in_charges", "sign_in_hash"),
        *(("reauthentications", "address_hash"), ("reauthentications", "code_salt"), ("reauthentications", "code_hash")),
        *(("mails", "browser_hash"), ("one_time_tokens", "browser_hash")),
        *(("saml_logouts", "browser_hash"), ("authorization_codes", "code_hash"), ("client_assertions", "jti_hash")),
        *(("device_codes", "device_code_hash"), ("device_codes", "user_code_hash")),
        *(("credentials", "secret_hash"), ("personal_tokens", "token_hash"), ("images", "small"), ("images", "large")),
        *(("pushed_requests", "request_hash"), ("pushed_requests", "browser_hash")),
        *(("sign_in_flows", "browser_hash"), ("sign_in_flows", "secret_hash"), ("sign_in_flows", "ticket_hash")),
        ("sign_in_flows", "challenge_hash"),
        ("dpop_nonce_keys", "secret"),  # every client gets the nonces; it is used for an hour, and is in no backup
    }
    assert COLUMNS.keys() == set(SealedColumn)
    assert set(columns) - not_encrypted == {tuple(kind.split(".")) for kind in SealedColumn}
