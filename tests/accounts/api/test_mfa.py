"""The second factor of the signed-in user (security M-1, M-2, M-3, M-4, M-5, M-6; decisions 43, 44).

The module is longer than 400 lines, because its tests share fixtures and helpers.
"""

import re
import shutil
import subprocess
from datetime import timedelta
from urllib.parse import parse_qs, urlsplit
from uuid import UUID
from xml.etree import ElementTree as ET

import pytest
import segno

from adapters.postgres.engine.pool import Pool
from core.accounts import mfa, mfa_rules
from core.accounts.accounts_rules import Account
from core.accounts.attempt_limits_rules import TooManyAttempts
from core.accounts.email_queue_rules import EmailKind
from core.accounts.mfa_rules import ALPHABET, CodeWrong
from core.authentication.login_rules import PreAuthInvalid
from core.kernel.principals import AccountGone, Person
from core.kernel.values import new_id
from ports import Ports
from tests.fakes.outside import FakeClock, FakeMailTransport
from tests.support.builders import EMAIL, Answer, Api, add_account, add_member, add_organization, deliver, impersonate, run_sql, sign_in
from tests.support.mfa import STEP, Authenticator, add_mfa, show
from tests.support.refusals import BAD, FORBIDDEN, UNAUTHORIZED, refused
from tests.support.services import add_service, sign_in_to

PATH = "/api/user/mfa"
LIMITED = (429, "RATE_LIMIT_EXCEEDED")
MALFORMED = [
    "",
    "12345",
    "1234567",
    " 123456",
    "123456 ",
    "123 456",
    "12345a",
    "-12345",
    "١٢٣٤٥٦",
    "\uff11\uff12\uff13\uff14\uff15\uff16",
    "ABCD-EFGH",
    "123456\x00",
]


class MfaUser:
    """A signed-in user."""

    def __init__(self, api: Api, ports: Ports, account: Account, token: str) -> None:
        self.api, self.ports, self.account, self.token = api, ports, account, token

    @property
    def person(self) -> Person:
        return Person(user_id=self.account.id, email=self.account.email, session_id=new_id())

    async def status(self) -> tuple[bool, bool]:
        answer = await self.api.get(f"{PATH}/status", token=self.token)
        assert answer.status == 200, answer.text
        assert answer.json.keys() == {"enabled", "has_backup_codes"}
        return answer.json["enabled"], answer.json["has_backup_codes"]

    async def setup(self) -> Answer:
        return await self.api.post(f"{PATH}/setup", token=self.token)

    async def pending(self) -> Authenticator:
        answer = await self.setup()
        assert answer.status == 200, answer.text
        return Authenticator(answer.json["secret"], self.ports.clock)

    async def verify(self, code: object) -> Answer:
        return await self.api.post(f"{PATH}/verify", {"code": code}, token=self.token)

    async def enabled(self) -> Authenticator:
        """Enable the second factor. Return the app with the backup codes; its current code is used up."""
        app = await self.pending()
        answer = await self.verify(app.code())
        assert answer.status == 200, answer.text
        app.backup_codes = answer.json["backup_codes"]
        return app

    async def disable(self) -> Answer:
        return await self.api.delete(PATH, token=self.token)

    async def regenerate(self) -> Answer:
        return await self.api.post(f"{PATH}/backup-codes/regenerate", token=self.token)

    async def show(self, code: str) -> None:
        """Use a code in a pending sign-in."""
        await show(self.ports, self.account, code)

    async def may_show(self, code: str) -> bool:
        try:
            await self.show(code)
        except (CodeWrong, PreAuthInvalid):  # PreAuthInvalid if the sign-in needs no code any longer
            return False
        return True


@pytest.fixture
async def user(api: Api, ports: Ports) -> MfaUser:
    account = await add_account(ports, password=None)
    return MfaUser(api, ports, account, (await sign_in(ports, account)).access_token)


async def logged(pool: Pool) -> list[str]:
    return [event for (event,) in await run_sql(pool, "select event_type from mfa_events order by created_at, id")]


async def recorded_names(pool: Pool) -> list[str]:
    """Return the names of events and audit entries of all organizations, in order."""
    events = await run_sql(pool, "select name from events where name like %s order by created_at", "%mfa%")
    entries = await run_sql(pool, "select 'log: ' || action from audit_log order by created_at")
    return [name for (name,) in [*events, *entries]]


async def queued_emails(pool: Pool) -> list[tuple[str, str]]:
    return [(kind, address) for kind, address in await run_sql(pool, "select kind, address from mails order by created_at")]


# Setup


async def test_a_setup_has_no_effect_until_it_is_confirmed(user: MfaUser, pool: Pool) -> None:
    assert await user.status() == (False, False)
    app = await user.pending()
    assert await user.status() == (False, False)
    assert not await user.may_show(app.code()), "no code is correct before the confirmation"
    answer = await user.verify(app.code())
    assert answer.status == 200
    assert answer.json.keys() == {"enabled", "backup_codes"}
    assert answer.json["enabled"] is True
    assert await user.status() == (True, True)
    assert await run_sql(pool, "select mfa_enabled_at from users") == [(user.ports.clock.now(),)]


async def test_setup_returns_the_secret_its_uri_and_its_qr_code(user: MfaUser) -> None:
    answer = await user.setup()
    assert answer.json.keys() == {"secret", "qr_code_svg", "qr_code_uri"}
    assert answer.headers["Cache-Control"] == "no-store"
    assert re.fullmatch("[A-Z2-7]{32}", answer.json["secret"])
    uri = urlsplit(answer.json["qr_code_uri"])
    assert (uri.scheme, uri.netloc, uri.path) == ("otpauth", "totp", "/Gatehouse:ada%40example.com")
    assert parse_qs(uri.query) == {"secret": [answer.json["secret"]], "issuer": ["Gatehouse"]}
    assert modules(answer.json["qr_code_svg"]) == [
        list(row) for row in segno.make(answer.json["qr_code_uri"], error="m", micro=False).matrix
    ]


def modules(svg: str) -> list[list[int]]:
    """Return the dark modules of a QR code, row by row. Checks that it has a white quiet zone."""
    root = ET.fromstring(svg)  # noqa: S314
    space = "{http://www.w3.org/2000/svg}"
    size = int(root.attrib["viewBox"].split()[2])
    ground, drawn = root.findall(f"{space}path")
    assert (ground.attrib["fill"], ground.attrib["d"]) == ("#fff", f"M0 0h{size}v{size}h-{size}z")
    assert drawn.attrib["stroke"] == "#000"
    rows = [[0] * size for _ in range(size)]
    x, y = 0.0, 0.0
    for kind, numbers in re.findall(r"([Mmh])(-?[\d.]+(?: -?[\d.]+)?)", drawn.attrib["d"]):
        values = [float(number) for number in numbers.split()]
        match kind:
            case "M":
                x, y = values
            case "m":
                x, y = x + values[0], y + values[1]
            case _:
                rows[int(y)][int(x) : int(x + values[0])] = [1] * int(values[0])
                x += values[0]
    border = [row for number, row in enumerate(rows) if number < 4 or number >= size - 4] + [row[:4] + row[-4:] for row in rows]
    assert not any(map(any, border))
    return [row[4:-4] for row in rows[4:-4]]


async def test_the_qr_code_has_a_name_and_loads_nothing(user: MfaUser) -> None:
    svg = (await user.setup()).json["qr_code_svg"]
    assert svg.startswith("<svg ")
    root = ET.fromstring(svg)  # noqa: S314
    assert root.attrib["role"] == "img"
    assert root.findtext("{http://www.w3.org/2000/svg}title") == "QR code to add your Gatehouse account to an authenticator app"
    assert not re.search(r"href|url\(|<style|style=|<script|\bon\w+=|secret=", svg)


@pytest.mark.skipif(shutil.which("oathtool") is None, reason="oathtool is not installed")
async def test_a_code_of_oathtool_confirms_the_setup(user: MfaUser) -> None:
    secret = (await user.setup()).json["secret"]
    now = f"--now={user.ports.clock.now():%Y-%m-%d %H:%M:%S} UTC"
    code = subprocess.run(["oathtool", "--totp", "-b", now, secret], capture_output=True, text=True, check=True, timeout=10)  # noqa: ASYNC221
    assert (await user.verify(code.stdout.strip())).status == 200


async def test_a_repeated_setup_replaces_the_pending_secret(user: MfaUser) -> None:
    first, second = await user.pending(), await user.pending()
    assert first.secret != second.secret
    assert refused(await user.verify(first.code())) == BAD
    assert (await user.verify(second.code())).status == 200


async def test_a_pending_secret_expires_after_15_minutes(user: MfaUser, clock: FakeClock) -> None:
    app = await user.pending()
    clock.advance(timedelta(minutes=15) - timedelta(microseconds=1))
    user.token = (await sign_in(user.ports, user.account)).access_token
    assert refused(await user.verify(app.wrong())) == BAD
    clock.advance(timedelta(microseconds=1))
    answer = await user.verify(app.code())
    assert refused(answer) == BAD
    assert "15 minutes" in answer.json["error"]
    assert await user.status() == (False, False)


async def test_a_pending_secret_can_be_shown_again_until_it_is_confirmed(user: MfaUser, clock: FakeClock) -> None:
    person = user.person
    assert await mfa.find_pending_setup(user.ports, person) is None
    setup = (await user.setup()).json
    shown = await mfa.find_pending_setup(user.ports, person)
    assert shown is not None
    assert (shown.secret, shown.uri) == (setup["secret"], setup["qr_code_uri"])
    clock.advance(timedelta(minutes=15))
    assert await mfa.find_pending_setup(user.ports, person) is None
    await add_mfa(user.ports, user.account)
    assert await mfa.find_pending_setup(user.ports, person) is None, "a confirmed secret is never shown"


@pytest.mark.parametrize("steps", [-1, 0, 1])
async def test_a_code_of_an_adjacent_step_is_accepted(user: MfaUser, steps: int) -> None:
    app = await user.pending()
    for far in (-2, 2):
        assert refused(await user.verify(app.code(far))) == BAD
    assert (await user.verify(app.code(steps))).status == 200


async def test_malformed_codes_are_refused_and_not_counted(user: MfaUser, pool: Pool) -> None:
    app = await user.pending()
    for code in MALFORMED:
        assert refused(await user.verify(code)) == BAD, code
    assert await run_sql(pool, "select 1 from guesses") == []
    assert await logged(pool) == ["mfa_setup_initiated"]
    assert (await user.verify(app.code())).status == 200


async def test_a_body_without_a_code_is_refused(user: MfaUser) -> None:
    for body in ({}, {"code": None}, {"code": 123456}, {"code": ["123456"]}, {"code": "1" * 5000}):
        assert refused(await user.api.post(f"{PATH}/verify", body, token=user.token)) == BAD, body


async def test_verifying_without_a_setup_is_refused(user: MfaUser, pool: Pool) -> None:
    answer = await user.verify("123456")
    assert refused(answer) == BAD
    assert await run_sql(pool, "select 1 from guesses") == []
    assert await logged(pool) == []


async def test_setup_gives_ten_backup_codes_of_unambiguous_characters(user: MfaUser) -> None:
    codes = (await user.enabled()).backup_codes
    assert len(set(codes)) == len(codes) == 10
    assert all(re.fullmatch(f"[{ALPHABET}]{{4}}-[{ALPHABET}]{{4}}", code) for code in codes)


async def test_setup_and_verify_are_refused_while_it_is_on(user: MfaUser, pool: Pool, clock: FakeClock) -> None:
    app = await user.enabled()
    clock.advance(STEP)
    before = await run_sql(pool, "select * from mfa"), await logged(pool), await queued_emails(pool)
    for answer in (await user.setup(), await user.verify(app.code()), await user.verify(app.wrong())):
        assert refused(answer) == BAD
        assert "already" in answer.json["error"]
    assert (await run_sql(pool, "select * from mfa"), await logged(pool), await queued_emails(pool)) == before
    assert await user.may_show(app.code()), "the secret is unchanged, and its code unused"


@pytest.mark.slow
async def test_secrets_are_returned_once_and_never_stored_in_plain_text(user: MfaUser, pool: Pool) -> None:
    app = await user.pending()
    answers = [
        await user.verify(app.code()),
        await user.setup(),
        await user.api.get(f"{PATH}/status", token=user.token),
        await user.regenerate(),
    ]
    codes = [*answers[0].json["backup_codes"], *answers[3].json["backup_codes"]]
    assert not any(app.secret in answer.text for answer in answers)
    assert {answer.headers["Cache-Control"] for answer in answers} == {"no-store"}
    assert not any(code in answer.text for code in codes[:10] for answer in answers[1:])
    for (table,) in await run_sql(pool, "select table_name::text from information_schema.tables where table_schema = 'public'"):
        stored = str(await run_sql(pool, f"select * from {table}"))  # noqa: S608
        assert not any(secret in stored for secret in (app.secret, app.code(), *codes)), table


# Codes


async def test_the_code_that_confirmed_the_setup_is_used_up(user: MfaUser, clock: FakeClock) -> None:
    app = await user.enabled()
    assert not await user.may_show(app.code())
    assert not await user.may_show(app.code(-1))
    assert await user.may_show(app.code(1)), "a code of the next step, from a clock that is ahead"
    clock.advance(STEP)
    assert not await user.may_show(app.code())


@pytest.mark.slow
async def test_every_backup_code_works_once(user: MfaUser, clock: FakeClock) -> None:
    app = await user.enabled()
    for left, code in enumerate(reversed(app.backup_codes)):
        assert await user.status() == (True, True), left
        assert await user.may_show(code)
        assert not await user.may_show(code)
    assert await user.status() == (True, False), "no code is left"
    clock.advance(STEP)
    assert await user.may_show(app.code())


async def test_the_use_of_a_backup_code_is_logged_and_emailed(user: MfaUser, pool: Pool, clock: FakeClock, sent: FakeMailTransport) -> None:
    app = await user.enabled()
    clock.advance(STEP)
    before = len(await logged(pool)), len(await queued_emails(pool))
    await user.show(app.backup_codes[0])
    assert (await logged(pool))[before[0] :] == ["mfa_verify_attempt", "mfa_verify_success", "backup_code_used"]
    assert (await queued_emails(pool))[before[1] :] == [("backup_code_used", EMAIL)]
    await deliver(user.ports)
    assert [email.to for email in sent.emails if email.subject == "A backup code was used - Gatehouse"] == [EMAIL]


# Disabling, and new backup codes


async def test_disabling_deletes_the_secret_and_the_codes(user: MfaUser, pool: Pool, clock: FakeClock) -> None:
    app = await user.enabled()
    answer = await user.disable()
    assert answer.status == 200
    assert answer.json.keys() == {"success", "message"}
    assert answer.json["success"] is True
    assert await user.status() == (False, False)
    assert await run_sql(pool, "select user_id from mfa union all select user_id from backup_codes") == []
    assert await run_sql(pool, "select mfa_enabled_at from users") == [(None,)]
    clock.advance(STEP)
    assert not await user.may_show(app.code())
    assert not await user.may_show(app.backup_codes[0])
    again = await user.enabled()
    assert again.secret != app.secret
    assert not set(again.backup_codes) & set(app.backup_codes)
    clock.advance(STEP)
    assert [await user.may_show(code) for code in (app.code(), app.backup_codes[0], again.code())] == [False, False, True]


async def test_disabling_it_while_off_succeeds_and_records_nothing(user: MfaUser, pool: Pool) -> None:
    app = await user.pending()
    before = await logged(pool)
    for _ in range(2):
        answer = await user.disable()
        assert (answer.status, answer.json["success"], answer.json.keys()) == (200, True, {"success", "message"})
    assert (await logged(pool), await recorded_names(pool), await queued_emails(pool)) == (before, [], [])
    assert refused(await user.verify(app.code())) == BAD, "the pending secret is deleted"


async def test_regenerating_replaces_all_earlier_codes(user: MfaUser, pool: Pool) -> None:
    app = await user.enabled()
    await user.show(app.backup_codes[0])
    answer = await user.regenerate()
    assert answer.status == 200
    assert answer.json.keys() == {"backup_codes"}
    new = answer.json["backup_codes"]
    assert len(set(new)) == len(new) == 10
    assert not set(new) & set(app.backup_codes)
    assert [await user.may_show(code) for code in (*app.backup_codes[:3], *new[:2])] == [False, False, False, True, True]
    assert (await queued_emails(pool))[2] == ("backup_codes_regenerated", EMAIL)


async def test_regenerating_works_when_all_codes_are_used(user: MfaUser) -> None:
    await add_mfa(user.ports, user.account, backup_codes=["ABCD-EFGH"])
    await user.show("ABCD-EFGH")
    assert await user.status() == (True, False)
    await user.regenerate()
    assert await user.status() == (True, True)


async def test_regenerating_while_off_is_refused(user: MfaUser, pool: Pool) -> None:
    for begin in (False, True):
        if begin:
            await user.setup()
        assert refused(await user.regenerate()) == BAD
    assert await run_sql(pool, "select 1 from backup_codes") == []
    assert await queued_emails(pool) == []


@pytest.mark.parametrize("act", ["enable", "disable"])
async def test_enabling_and_disabling_end_device_trust_and_pending_sign_ins(user: MfaUser, pool: Pool, clock: FakeClock, act: str) -> None:
    other_user = await add_account(user.ports, "eve@example.com", None)
    device = """
        insert into devices (id, user_id, name, device_type, browser, os, last_used_at, risk_score, risk_factors, trust_hash,
                             trust_expires_at, created_at, updated_at)
        select gen_random_uuid(), id, 'Laptop', 'browser', 'Firefox', 'Linux', now(), 0, '{}', decode(md5(id::text), 'hex'),
               now() + interval '90 days', now(), now() from users"""
    pre_auth = """
        insert into pre_auths (id, user_id, provider, created_at, expires_at)
        select gen_random_uuid(), id, 'password', now(), now() + interval '10 minutes' from users"""
    app = await user.enabled() if act == "disable" else await user.pending()
    await run_sql(pool, device)
    await run_sql(pool, pre_auth)
    answer = await user.disable() if act == "disable" else await user.verify(app.code())
    assert answer.status == 200
    assert await run_sql(pool, "select user_id from devices where trust_hash is not null") == [(other_user.id,)]
    assert await run_sql(pool, "select user_id from pre_auths") == [(other_user.id,)]
    assert (await user.api.get("/api/user", token=user.token)).status == 200, "the session continues"


# Events, logs and emails


async def test_organizations_of_confirmed_memberships_are_notified(user: MfaUser, pool: Pool) -> None:
    orgs = {slug: await add_organization(pool, slug) for slug in ("acme", "twin", "loose")}
    for slug, org in orgs.items():
        await add_member(pool, org, user.account.id, confirmed=slug != "loose")
    await user.enabled()
    await user.disable()
    names = ("enabled", "disabled")
    confirmed_orgs = {orgs["acme"], orgs["twin"]}
    for table, column, prefix in (("audit_log", "action", "security"), ("events", "name", "security"), ("events", "name", "user")):
        for name in names:
            query = f"select org_id, target_id, actor_id from {table} where {column} = %s"  # noqa: S608
            rows = await run_sql(pool, query, f"{prefix}.mfa.{name}")
            assert {row[0] for row in rows} == confirmed_orgs
            assert {row[1:] for row in rows} == {(str(user.account.id), user.account.id)}
    assert await run_sql(pool, "select 1 from audit_log where action like 'user.%%'") == []


async def test_the_platform_log_records_users_without_an_organization(user: MfaUser, pool: Pool) -> None:
    await user.enabled()
    assert await run_sql(pool, "select org_id, action from audit_log") == [(None, "security.mfa.enabled")]


@pytest.mark.slow
async def test_the_log_of_the_second_factor_is_complete(user: MfaUser, pool: Pool, clock: FakeClock) -> None:
    app = await user.pending()
    clock.advance(STEP)
    await user.verify(app.wrong())
    clock.advance(STEP)
    await user.verify(app.code())
    clock.advance(STEP)
    await user.may_show(app.wrong())
    clock.advance(STEP)
    await user.show(app.code())
    clock.advance(STEP)
    await user.regenerate()
    clock.advance(STEP)
    await user.disable()
    assert await logged(pool) == [
        "mfa_setup_initiated",
        "mfa_setup_failed",
        *("mfa_setup_completed", "mfa_enabled", "backup_codes_generated"),
        *("mfa_verify_attempt", "mfa_verify_failed"),
        *("mfa_verify_attempt", "mfa_verify_success"),
        "backup_codes_generated",
        "mfa_disabled",
    ]
    rows = await run_sql(pool, "select distinct user_id, address is null from mfa_events where event_type like 'mfa_setup%%'")
    assert rows == [(user.account.id, False)]


async def test_the_user_gets_an_email_about_every_change(user: MfaUser, pool: Pool, sent: FakeMailTransport, clock: FakeClock) -> None:
    app = await user.enabled()
    await user.regenerate()
    clock.advance(STEP)
    await user.show(app.code())
    await user.disable()
    await deliver(user.ports)
    subjects = {email.subject.removesuffix(" - Gatehouse"): email.to for email in sent.emails}
    assert subjects == dict.fromkeys(
        ["Two-factor authentication is on", "You have new backup codes", "Two-factor authentication is off"], EMAIL
    )
    assert {kind for kind, _ in await queued_emails(pool)} == {
        EmailKind.MFA_ENABLED,
        EmailKind.BACKUP_CODES_REGENERATED,
        EmailKind.MFA_DISABLED,
    }


# Attempt limits (security M-2)


async def test_ten_wrong_codes_block_all_codes_of_the_account(user: MfaUser, clock: FakeClock) -> None:
    app = await user.pending()
    assert [refused(await user.verify(app.wrong())) for _ in range(10)] == [BAD] * 10
    blocked = await user.verify(app.code())
    assert refused(blocked) == LIMITED
    assert blocked.headers["Retry-After"] == "900"
    assert "code" in blocked.json["error"]
    assert "password" not in blocked.json["error"]
    with pytest.raises(TooManyAttempts):
        await show(user.ports, user.account, app.code())
    clock.advance(timedelta(seconds=900))
    user.token = (await sign_in(user.ports, user.account)).access_token
    app = await user.pending()
    assert [refused(await user.verify(app.wrong())) for _ in range(9)] == [BAD] * 9
    assert (await user.verify(app.code())).status == 200


async def test_attempts_at_sign_in_and_at_setup_are_counted_together(user: MfaUser, pool: Pool) -> None:
    app = await user.enabled()
    assert [await user.may_show("ABCD-EFGH") for _ in range(5)] == [False] * 5
    await run_sql(pool, "update users set mfa_enabled_at = null")
    app = await user.pending()
    assert [refused(await user.verify(app.wrong())) for _ in range(5)] == [BAD] * 5
    assert refused(await user.verify(app.code())) == LIMITED


@pytest.mark.slow
async def test_a_correct_code_clears_the_failed_attempts(user: MfaUser, clock: FakeClock) -> None:
    app = await user.pending()
    assert [refused(await user.verify(app.wrong())) for _ in range(9)] == [BAD] * 9
    assert (await user.verify(app.code())).status == 200
    for _ in range(3):
        clock.advance(STEP)
        assert [await user.may_show(app.wrong()) for _ in range(9)] == [False] * 9
        assert await user.may_show(app.code())


async def test_failed_attempts_of_all_sessions_are_counted_together(user: MfaUser) -> None:
    app = await user.pending()
    for _ in range(10):
        user.token = (await sign_in(user.ports, user.account)).access_token
        assert refused(await user.verify(app.wrong())) == BAD
    assert refused(await user.verify(app.code())) == LIMITED


# Access


ALL = [("GET", "/status"), ("POST", "/setup"), ("POST", "/verify"), ("DELETE", ""), ("POST", "/backup-codes/regenerate")]


async def test_every_endpoint_requires_a_token(api: Api) -> None:
    for method, path in ALL:
        assert refused(await api.call(method, PATH + path)) == UNAUTHORIZED, path


@pytest.mark.parametrize("who", ["impersonator", "application"])
async def test_an_impersonator_and_an_application_can_only_read(user: MfaUser, pool: Pool, acme_id: UUID, who: str) -> None:
    if who == "impersonator":
        owner = await add_account(user.ports, "owner@platform.example", None, is_platform_owner=True)
        token = await impersonate(user.ports, owner, user.account)
    else:
        service = await add_service(pool, acme_id, "shop")
        token = (await sign_in_to(user.ports, pool, service, user.account)).access_token
    app = await user.pending()
    for method, path in ALL:
        answer = await user.api.call(method, PATH + path, None if method == "GET" else {"code": app.code()}, token=token)
        assert (answer.status if method == "GET" else refused(answer)) == (200 if method == "GET" else FORBIDDEN), path
    assert await user.status() == (False, False)
    assert await logged(pool) == ["mfa_setup_initiated"]


@pytest.fixture
async def acme_id(pool: Pool) -> UUID:
    return await add_organization(pool, "acme")


async def test_other_accounts_do_not_change(user: MfaUser, pool: Pool, clock: FakeClock) -> None:
    other_user = await add_account(user.ports, "eve@example.com", None)
    app = await add_mfa(user.ports, other_user)
    stored = "select m.*, u.mfa_enabled_at from mfa m join users u on u.id = m.user_id where u.id = %s"
    codes = "select * from backup_codes where user_id = %s order by code_hash"
    before = await run_sql(pool, stored, other_user.id), await run_sql(pool, codes, other_user.id)
    mine = await user.enabled()
    await user.regenerate()
    clock.advance(STEP)
    assert not await user.may_show(app.code())
    assert not await user.may_show(app.backup_codes[0])
    await user.show(mine.code())
    await user.disable()
    assert (await run_sql(pool, stored, other_user.id), await run_sql(pool, codes, other_user.id)) == before


async def test_a_deleted_account_is_refused(user: MfaUser, pool: Pool) -> None:
    await run_sql(pool, "delete from users")
    for act in (mfa.get_status, mfa.start_setup, mfa.disable, mfa.regenerate_backup_codes):
        with pytest.raises(AccountGone):
            await act(user.ports, user.person)
    with pytest.raises(mfa_rules.NotSetUp):
        await mfa.confirm_setup(user.ports, user.person, "123456")
    assert await logged(pool) == []
