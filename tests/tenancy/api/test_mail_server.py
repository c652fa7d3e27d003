"""An organization's mail server, and its emails through a real server.

The rules come from security E-1, E-4, L-1, L-3, W-1, W-7, Z-5.
"""

import json
from collections.abc import Iterator
from dataclasses import dataclass, replace
from email.message import EmailMessage
from pathlib import Path
from typing import Any

import pytest
from quart_trio import QuartTrio

from adapters.email.transports import FolderTransport, MailRouter, OrganizationSmtp
from adapters.http.guard import Guard, parse_allowed_targets
from adapters.postgres.engine.pool import Pool
from core.tenancy.model.settings import MailServerCheck, MailServerTest
from ports import Ports
from tests.fakes.outside import FakeMailTransport
from tests.fakes.smtp_sink import SmtpSink
from tests.support.builders import add_account, deliver, run_sql
from tests.support.direct import change_ports
from tests.support.refusals import BAD, MISSING, refused
from tests.support.tenants import Tenant
from tests.tenancy.integrations import PASSWORD, SMTP

MINIMAL = {"host": "mail.acme.example", "from_email": "post@acme.example"}
FULL = SMTP.full
put, get, remove, send_test = SMTP.put, SMTP.get, SMTP.remove, SMTP.send_test
RESPONSE = {name: value for name, value in FULL.items() if name != "password"} | {"has_password": True}
MINIMAL_RESPONSE = {**MINIMAL, "port": 587, "username": None, "has_password": False, "from_name": None, "tls": True}


# Settings


@pytest.mark.parametrize("by", ["owner", "admin"])
async def test_managers_set_the_mail_server_and_nothing_reveals_its_password(acme: Tenant, other_tenant: Tenant, by: str) -> None:
    answer = await put(acme, FULL, by)
    assert (answer.status, answer.json) == (200, RESPONSE)
    for name in ("owner", "admin"):
        settings = await get(acme, name)
        assert (settings.status, settings.json) == (200, RESPONSE)
    assert refused(await get(other_tenant)) == MISSING
    details = {name: value for name, value in RESPONSE.items() if name != "username"}
    assert await acme.recorded() == [("organization.smtp.configured", "organization", str(acme.org), acme.people[by].id, details)]
    assert await acme.webhook_events() == [("organization.smtp.configured", str(acme.org), details)]
    records = json.dumps([*await acme.log(), *await acme.webhook_events()], default=str) + answer.text
    assert PASSWORD not in records
    assert await run_sql(acme.pool, "select true from smtp_settings where encode(password, 'escape') like %s", f"%{PASSWORD}%") == []


async def test_omitted_fields_have_their_defaults(acme: Tenant) -> None:
    assert (await put(acme, MINIMAL)).json == MINIMAL_RESPONSE
    nulls = {"username": None, "password": None, "from_name": None}
    assert (await put(acme, {**MINIMAL, **nulls})).json == (await get(acme)).json == MINIMAL_RESPONSE


async def test_a_new_host_never_gets_the_old_password(acme: Tenant) -> None:
    await put(acme, FULL)
    assert refused(await put(acme, {**MINIMAL, "host": "mail.evil.example", "username": "robot@acme.example"})) == BAD
    assert (await get(acme)).json == RESPONSE
    assert (await put(acme, {**MINIMAL, "host": "other.acme.example"})).json == {**MINIMAL_RESPONSE, "host": "other.acme.example"}
    assert await run_sql(acme.pool, "select username, password from smtp_settings") == [(None, None)]
    assert [entry["action"] for entry in await acme.log()] == ["organization.smtp.configured"] * 2


INVALID: list[dict[str, Any]] = [
    *({"host": host} for host in ("", "mail:25", "ma il", "[::1]", "fe80::1%eth0", "smtp://mail", "mail\r\nx", None, 5)),
    *({"port": port} for port in (0, 22, 80, 443, 1023, 65536, 2**31, -25, True, "587", 25.0, None)),
    {"username": "robot"},
    {"password": PASSWORD},
    {"username": "robot", "password": None},
    {"username": "", "password": ""},
    {"username": "r\u00f6bot", "password": PASSWORD},
    {"username": "robot\r\nRSET", "password": PASSWORD},
    {"username": "robot", "password": "x" * 2049},
    *({"from_email": address} for address in ("post", "post@acme.example\r\nBcc: eve@example.com", "Acme <post@acme.example>", None)),
    *({"from_name": name} for name in ("", "Acme\r\nBcc: eve@example.com", "=?utf-8?q?x=0D=0ABcc:_eve@example.com?=", "A" * 101, "\u202e")),
    *({"tls": tls} for tls in ("yes", None, 0)),
]


async def test_invalid_settings_are_refused_and_change_nothing(acme: Tenant) -> None:
    await put(acme, MINIMAL)
    for changes in INVALID:
        answer = await put(acme, {**MINIMAL, **changes})
        assert refused(answer) == BAD, changes
        assert PASSWORD not in answer.text
    assert (await get(acme)).json == MINIMAL_RESPONSE
    assert len(await acme.log()) == 1


async def test_host_and_sender_are_required(acme: Tenant) -> None:
    for missing in MINIMAL:
        answer = await put(acme, {name: value for name, value in MINIMAL.items() if name != missing})
        assert refused(answer) == BAD
        assert missing in answer.json["error"]


async def test_a_removed_mail_server_is_deleted_and_recorded_once(acme: Tenant, other_tenant: Tenant) -> None:
    for tenant in (acme, other_tenant):
        await put(tenant, FULL)
    answer = await remove(acme, "admin")
    assert (answer.status, answer.text) == (204, "")
    assert refused(await get(acme)) == refused(await remove(acme)) == MISSING
    entry = await acme.entry("organization.smtp.removed")
    assert (entry["target_id"], entry["actor_id"], entry["details"]) == (
        str(acme.org),
        acme.people["admin"].id,
        {"host": "mail.acme.example", "port": 465},
    )
    assert (await get(other_tenant)).json == RESPONSE


# Testing


async def test_a_test_reports_one_of_the_fixed_messages(acme: Tenant, sent: FakeMailTransport) -> None:
    await put(acme, FULL)
    for trial in MailServerCheck:
        sent.check_result = MailServerTest(trial)
        answer = await send_test(acme, "admin")
        assert (answer.status, answer.json) == (200, {"success": trial is MailServerCheck.GOOD, "message": trial.value})
    checked = sent.checked_servers[0]
    assert (checked.org_id, checked.host, checked.port, checked.username) == (acme.org, FULL["host"], FULL["port"], FULL["username"])
    assert checked.password == PASSWORD
    assert (sent.tests[0].to, sent.tests[0].subject) == (acme.people["admin"].email, "Your mail server works - Acme")
    assert len(await acme.log()) == 1


async def test_a_password_that_cannot_be_decrypted_gives_a_generic_error(acme: Tenant) -> None:
    await put(acme, FULL)
    await run_sql(acme.pool, "update smtp_settings set password = 'x'")
    answer = await send_test(acme)
    assert answer.status == 500
    assert "seal" not in answer.text.lower()
    # The settings can still be read and replaced.
    assert (await get(acme)).json == RESPONSE
    assert (await put(acme, FULL)).status == 200
    assert (await send_test(acme)).json["success"]


# With a real server


@dataclass(slots=True)
class RealServers:
    """Real email transports: a folder for the platform, a server with a password for acme."""

    ports: Ports
    server: SmtpSink
    folder: Path

    def settings(self, **changes: Any) -> dict[str, Any]:
        return {**FULL, "host": "127.0.0.1", "port": self.server.port, "tls": False, **changes}

    async def deliver(self) -> None:
        await deliver(self.ports)

    @property
    def filed(self) -> str:
        """The content in all files in the folder."""
        return "".join(path.read_text("utf-8") for path in sorted(self.folder.iterdir()))

    @property
    def served(self) -> list[EmailMessage]:
        return self.server.messages


@pytest.fixture
def real_servers(app: QuartTrio, ports: Ports, tmp_path: Path) -> Iterator[RealServers]:
    with SmtpSink(login=(str(FULL["username"]), PASSWORD)) as sink:
        own_servers = OrganizationSmtp(Guard(parse_allowed_targets(f"127.0.0.1:{sink.port}")))
        mail = MailRouter(FolderTransport(tmp_path / "mail", "Gatereal_servers <gatereal_servers@example.com>"), own_servers)
        change_ports(app, mail=mail)
        yield RealServers(replace(ports, mail=mail), sink, tmp_path / "mail")


async def test_only_invitations_use_the_mail_server_of_the_organization(
    acme: Tenant, other_tenant: Tenant, real_servers: RealServers
) -> None:
    await put(acme, real_servers.settings())
    assert (await send_test(acme)).json == {"success": True, "message": MailServerCheck.GOOD.value}
    response = await acme.invite("grace@example.com")
    await other_tenant.invite("grace@example.com")
    await add_account(acme.ports, "grace@example.com")
    await acme.api.post("/api/auth/forgot-password", {"email": "grace@example.com", "org_slug": acme.slug})
    await real_servers.deliver()
    trial, message = real_servers.served
    assert (trial["Subject"], trial["To"]) == ("Your mail server works - Acme", acme.people["owner"].email)
    assert (str(message["From"]), message["To"]) == ("Acme Post <post@acme.example>", "grace@example.com")
    assert response["token"] in message.get_body(("plain",)).get_content()  # type: ignore[union-attr]
    assert "reset-password" not in str(message)
    assert real_servers.server.envelopes[0].mail_from == "post@acme.example"
    # Two emails use the platform's server: the invitation by another organization, and the password
    # reset.
    assert len(list(real_servers.folder.iterdir())) == 2
    assert response["token"] not in real_servers.filed
    assert "You are invited to Twin" in real_servers.filed
    assert "reset-password?token=" in real_servers.filed
    assert "acme.example" not in real_servers.filed.lower()


async def test_queued_emails_use_the_server_of_the_platform_after_a_removal(acme: Tenant, real_servers: RealServers) -> None:
    await put(acme, real_servers.settings())
    await acme.invite("grace@example.com")
    await remove(acme)
    await real_servers.deliver()
    assert real_servers.served == []
    assert "You are invited to Acme" in real_servers.filed
    assert "From: Gatereal_servers <gatereal_servers@example.com>" in real_servers.filed


async def test_a_test_of_an_unusable_server_says_why(acme: Tenant, real_servers: RealServers) -> None:
    trials: list[tuple[dict[str, object], str]] = [
        ({"password": "wrong"}, f"{MailServerCheck.NOT_SIGNED_IN} Its answer: 535"),
        ({"tls": True}, MailServerCheck.NOT_ENCRYPTED.value),
        ({"host": "::1"}, MailServerCheck.NO_ADDRESS.value),
        ({"host": "2130706433", "port": 2525}, MailServerCheck.NO_ADDRESS.value),
        ({"host": "127.0.0.2"}, MailServerCheck.NO_ADDRESS.value),
        ({"port": 25}, MailServerCheck.NO_ADDRESS.value),
    ]
    for changes, trial in trials:
        await put(acme, real_servers.settings(**changes))
        answer = await send_test(acme)
        assert (answer.status, answer.json) == (200, {"success": False, "message": trial}), changes
        for secret in ("127.0.0.1", str(real_servers.server.port), PASSWORD, "aiosmtpd"):
            assert secret not in answer.text
    assert real_servers.served == []
    real_servers.server.recipient_answer = "421 4.7.0 Try again <b>later</b>"
    await put(acme, real_servers.settings())
    message = f"{MailServerCheck.NOT_ACCEPTED} Its answer: 421 4.7.0 Try again <b>later</b>"
    assert (await send_test(acme)).json == {"success": False, "message": message}


async def test_the_mail_server_of_another_organization_is_never_used(
    acme: Tenant, other_tenant: Tenant, real_servers: RealServers, pool: Pool
) -> None:
    """Not even if its encrypted password is copied into another organization's row."""
    await put(acme, real_servers.settings())
    await put(other_tenant, real_servers.settings(password="another"))
    await run_sql(
        pool,
        "update smtp_settings set password = (select password from smtp_settings where org_id = %s) where org_id = %s",
        acme.org,
        other_tenant.org,
    )
    assert (await send_test(other_tenant)).status == 500
    assert real_servers.server.logins == 0


async def test_the_mail_server_is_deleted_with_the_organization(acme: Tenant, real_servers: RealServers, pool: Pool) -> None:
    await put(acme, real_servers.settings())
    await acme.invite("grace@example.com")
    await acme.api.delete(acme.path, token=acme.token("owner"))
    assert await run_sql(pool, "select count(*) from smtp_settings") == [(0,)]
    await real_servers.deliver()
    assert (real_servers.served, real_servers.filed) == ([], "")
