"""The second factor of the caller's own account (identity.md sections 3 and 4.2; security.md section 6; decisions, points 43 and 44)."""

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


class Ada:
    """Somebody who is signed in, and her app."""

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
        """Her app after enabling, with the backup codes; the code of now is used up."""
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
        """What signing in does with a code."""
        await show(self.ports, self.account, code)

    async def may_show(self, code: str) -> bool:
        try:
            await self.show(code)
        except (CodeWrong, PreAuthInvalid):  # the latter where nothing is asked for any more
            return False
        return True


@pytest.fixture
async def ada(api: Api, ports: Ports) -> Ada:
    account = await add_account(ports, password=None)
    return Ada(api, ports, account, (await sign_in(ports, account)).access_token)


async def logged(pool: Pool) -> list[str]:
    return [event for (event,) in await run_sql(pool, "select event_type from mfa_events order by created_at, id")]


async def told(pool: Pool) -> list[str]:
    """Names of events, and of entries of the logs, of whichever organization, in their order."""
    events = await run_sql(pool, "select name from events where name like %s order by created_at", "%mfa%")
    entries = await run_sql(pool, "select 'log: ' || action from audit_log order by created_at")
    return [name for (name,) in [*events, *entries]]


async def mailed(pool: Pool) -> list[tuple[str, str]]:
    return [(kind, address) for kind, address in await run_sql(pool, "select kind, address from mails order by created_at")]


# Setting it up


async def test_what_was_set_up_counts_only_when_it_is_confirmed(ada: Ada, pool: Pool) -> None:
    assert await ada.status() == (False, False)
    app = await ada.pending()
    assert await ada.status() == (False, False)
    assert not await ada.may_show(app.code()), "nothing is asked for yet, so nothing is right"
    answer = await ada.verify(app.code())
    assert answer.status == 200
    assert answer.json.keys() == {"enabled", "backup_codes"}
    assert answer.json["enabled"] is True
    assert await ada.status() == (True, True)
    assert await run_sql(pool, "select mfa_enabled_at from users") == [(ada.ports.clock.now(),)]


async def test_setup_shows_the_secret_its_address_and_a_qr_code_of_it(ada: Ada) -> None:
    answer = await ada.setup()
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
    """The dark modules that an SVG text draws, row by row, without the quiet zone; also proves that it has one, on white."""
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


async def test_the_qr_code_has_a_name_and_loads_nothing(ada: Ada) -> None:
    svg = (await ada.setup()).json["qr_code_svg"]
    assert svg.startswith("<svg ")
    root = ET.fromstring(svg)  # noqa: S314
    assert root.attrib["role"] == "img"
    assert root.findtext("{http://www.w3.org/2000/svg}title") == "QR code for an authenticator app to learn your Gatehouse account"
    assert not re.search(r"href|url\(|<style|style=|<script|\bon\w+=|secret=", svg)


@pytest.mark.skipif(shutil.which("oathtool") is None, reason="oathtool is not installed")
async def test_a_code_of_oathtool_enables_it(ada: Ada) -> None:
    secret = (await ada.setup()).json["secret"]
    now = f"--now={ada.ports.clock.now():%Y-%m-%d %H:%M:%S} UTC"
    code = subprocess.run(["oathtool", "--totp", "-b", now, secret], capture_output=True, text=True, check=True, timeout=10)  # noqa: ASYNC221
    assert (await ada.verify(code.stdout.strip())).status == 200


async def test_a_repeated_setup_replaces_the_pending_secret(ada: Ada) -> None:
    first, second = await ada.pending(), await ada.pending()
    assert first.secret != second.secret
    assert refused(await ada.verify(first.code())) == BAD
    assert (await ada.verify(second.code())).status == 200


async def test_a_pending_secret_expires_after_a_quarter_of_an_hour(ada: Ada, clock: FakeClock) -> None:
    app = await ada.pending()
    clock.advance(timedelta(minutes=15) - timedelta(microseconds=1))
    ada.token = (await sign_in(ada.ports, ada.account)).access_token
    assert refused(await ada.verify(app.wrong())) == BAD
    clock.advance(timedelta(microseconds=1))
    answer = await ada.verify(app.code())
    assert refused(answer) == BAD
    assert "set up" in answer.json["error"]
    assert await ada.status() == (False, False)


async def test_a_pending_secret_can_be_shown_again_until_it_is_confirmed(ada: Ada, clock: FakeClock) -> None:
    me = ada.person
    assert await mfa.find_pending_setup(ada.ports, me) is None
    begun = (await ada.setup()).json
    shown = await mfa.find_pending_setup(ada.ports, me)
    assert shown is not None
    assert (shown.secret, shown.uri) == (begun["secret"], begun["qr_code_uri"])
    clock.advance(timedelta(minutes=15))
    assert await mfa.find_pending_setup(ada.ports, me) is None
    await add_mfa(ada.ports, ada.account)
    assert await mfa.find_pending_setup(ada.ports, me) is None, "an active secret is told to nobody"


@pytest.mark.parametrize("steps", [-1, 0, 1])
async def test_a_clock_may_be_a_step_off(ada: Ada, steps: int) -> None:
    app = await ada.pending()
    for far in (-2, 2):
        assert refused(await ada.verify(app.code(far))) == BAD
    assert (await ada.verify(app.code(steps))).status == 200


@pytest.mark.parametrize("code", MALFORMED)
async def test_what_is_no_code_is_refused_and_not_counted(ada: Ada, pool: Pool, code: str) -> None:
    app = await ada.pending()
    assert refused(await ada.verify(code)) == BAD
    assert await run_sql(pool, "select 1 from guesses") == []
    assert await logged(pool) == ["mfa_setup_initiated"]
    assert (await ada.verify(app.code())).status == 200


@pytest.mark.parametrize("body", [{}, {"code": None}, {"code": 123456}, {"code": ["123456"]}, {"code": "1" * 5000}])
async def test_a_body_without_a_code_is_refused(ada: Ada, body: object) -> None:
    assert refused(await ada.api.post(f"{PATH}/verify", body, token=ada.token)) == BAD


async def test_without_a_setup_there_is_nothing_to_verify(ada: Ada, pool: Pool) -> None:
    answer = await ada.verify("123456")
    assert refused(answer) == BAD
    assert await run_sql(pool, "select 1 from guesses") == []
    assert await logged(pool) == []


async def test_backup_codes_are_ten_different_ones_of_letters_that_are_not_mistaken(ada: Ada) -> None:
    codes = (await ada.enabled()).backup_codes
    assert len(set(codes)) == len(codes) == 10
    assert all(re.fullmatch(f"[{ALPHABET}]{{4}}-[{ALPHABET}]{{4}}", code) for code in codes)


async def test_while_it_is_on_setup_and_verify_are_refused_and_nothing_changes(ada: Ada, pool: Pool, clock: FakeClock) -> None:
    app = await ada.enabled()
    clock.advance(STEP)
    before = await run_sql(pool, "select * from mfa"), await logged(pool), await mailed(pool)
    for answer in (await ada.setup(), await ada.verify(app.code()), await ada.verify(app.wrong())):
        assert refused(answer) == BAD
        assert "already" in answer.json["error"]
    assert (await run_sql(pool, "select * from mfa"), await logged(pool), await mailed(pool)) == before
    assert await ada.may_show(app.code()), "the secret is the same, and its code unused"


@pytest.mark.slow
async def test_nothing_secret_is_told_after_setup_or_written_down(ada: Ada, pool: Pool) -> None:
    app = await ada.pending()
    answers = [
        await ada.verify(app.code()),
        await ada.setup(),
        await ada.api.get(f"{PATH}/status", token=ada.token),
        await ada.regenerate(),
    ]
    codes = [*answers[0].json["backup_codes"], *answers[3].json["backup_codes"]]
    assert not any(app.secret in answer.text for answer in answers)
    assert {answer.headers["Cache-Control"] for answer in answers} == {"no-store"}
    assert not any(code in answer.text for code in codes[:10] for answer in answers[1:])
    for (table,) in await run_sql(pool, "select table_name::text from information_schema.tables where table_schema = 'public'"):
        stored = str(await run_sql(pool, f"select * from {table}"))  # noqa: S608
        assert not any(secret in stored for secret in (app.secret, app.code(), *codes)), table


# What it is good for


async def test_the_code_that_enabled_it_is_used_up(ada: Ada, clock: FakeClock) -> None:
    app = await ada.enabled()
    assert not await ada.may_show(app.code())
    assert not await ada.may_show(app.code(-1))
    assert await ada.may_show(app.code(1)), "of the next step, which a clock that is ahead shows"
    clock.advance(STEP)
    assert not await ada.may_show(app.code())


@pytest.mark.slow
async def test_every_backup_code_works_once(ada: Ada, clock: FakeClock) -> None:
    app = await ada.enabled()
    for left, code in enumerate(reversed(app.backup_codes)):
        assert await ada.status() == (True, True), left
        assert await ada.may_show(code)
        assert not await ada.may_show(code)
    assert await ada.status() == (True, False), "none is left"
    clock.advance(STEP)
    assert await ada.may_show(app.code())


async def test_a_use_of_a_backup_code_is_logged_and_mailed(ada: Ada, pool: Pool, clock: FakeClock, sent: FakeMailTransport) -> None:
    app = await ada.enabled()
    clock.advance(STEP)
    before = len(await logged(pool)), len(await mailed(pool))
    await ada.show(app.backup_codes[0])
    assert (await logged(pool))[before[0] :] == ["mfa_verify_attempt", "mfa_verify_success", "backup_code_used"]
    assert (await mailed(pool))[before[1] :] == [("backup_code_used", EMAIL)]
    await deliver(ada.ports)
    assert [letter.to for letter in sent.letters if letter.subject == "A backup code was used - Gatehouse"] == [EMAIL]


# Switching it off, and new backup codes


async def test_disabling_deletes_secret_and_codes(ada: Ada, pool: Pool, clock: FakeClock) -> None:
    app = await ada.enabled()
    answer = await ada.disable()
    assert answer.status == 200
    assert answer.json.keys() == {"success", "message"}
    assert answer.json["success"] is True
    assert await ada.status() == (False, False)
    assert await run_sql(pool, "select user_id from mfa union all select user_id from backup_codes") == []
    assert await run_sql(pool, "select mfa_enabled_at from users") == [(None,)]
    clock.advance(STEP)
    assert not await ada.may_show(app.code())
    assert not await ada.may_show(app.backup_codes[0])
    again = await ada.enabled()
    assert again.secret != app.secret
    assert not set(again.backup_codes) & set(app.backup_codes)
    clock.advance(STEP)
    assert [await ada.may_show(code) for code in (app.code(), app.backup_codes[0], again.code())] == [False, False, True]


async def test_disabling_what_is_off_is_done_and_recorded_nowhere(ada: Ada, pool: Pool) -> None:
    app = await ada.pending()
    before = await logged(pool)
    for _ in range(2):
        answer = await ada.disable()
        assert (answer.status, answer.json["success"], answer.json.keys()) == (200, True, {"success", "message"})
    assert (await logged(pool), await told(pool), await mailed(pool)) == (before, [], [])
    assert refused(await ada.verify(app.code())) == BAD, "what was pending is forgotten"


async def test_regenerating_voids_all_earlier_codes(ada: Ada, pool: Pool) -> None:
    app = await ada.enabled()
    await ada.show(app.backup_codes[0])
    answer = await ada.regenerate()
    assert answer.status == 200
    assert answer.json.keys() == {"backup_codes"}
    new = answer.json["backup_codes"]
    assert len(set(new)) == len(new) == 10
    assert not set(new) & set(app.backup_codes)
    assert [await ada.may_show(code) for code in (*app.backup_codes[:3], *new[:2])] == [False, False, False, True, True]
    assert (await mailed(pool))[2] == ("backup_codes_regenerated", EMAIL)


async def test_regenerating_gives_codes_again_when_all_are_used(ada: Ada) -> None:
    await add_mfa(ada.ports, ada.account, backup_codes=["ABCD-EFGH"])
    await ada.show("ABCD-EFGH")
    assert await ada.status() == (True, False)
    await ada.regenerate()
    assert await ada.status() == (True, True)


async def test_without_a_second_factor_there_are_no_codes_to_make(ada: Ada, pool: Pool) -> None:
    for begin in (False, True):
        if begin:
            await ada.setup()
        assert refused(await ada.regenerate()) == BAD
    assert await run_sql(pool, "select 1 from backup_codes") == []
    assert await mailed(pool) == []


@pytest.mark.parametrize("act", ["enable", "disable"])
async def test_device_trust_and_pre_auth_tokens_end(ada: Ada, pool: Pool, clock: FakeClock, act: str) -> None:
    eve = await add_account(ada.ports, "eve@example.com", None)
    device = """
        insert into devices (id, user_id, name, device_type, browser, os, last_used_at, risk_score, risk_factors, trust_hash,
                             trust_expires_at, created_at, updated_at)
        select gen_random_uuid(), id, 'Laptop', 'browser', 'Firefox', 'Linux', now(), 0, '{}', decode(md5(id::text), 'hex'),
               now() + interval '90 days', now(), now() from users"""
    pre_auth = """
        insert into pre_auths (id, user_id, provider, created_at, expires_at)
        select gen_random_uuid(), id, 'password', now(), now() + interval '10 minutes' from users"""
    app = await ada.enabled() if act == "disable" else await ada.pending()
    await run_sql(pool, device)
    await run_sql(pool, pre_auth)
    answer = await ada.disable() if act == "disable" else await ada.verify(app.code())
    assert answer.status == 200
    assert await run_sql(pool, "select user_id from devices where trust_hash is not null") == [(eve.id,)]
    assert await run_sql(pool, "select user_id from pre_auths") == [(eve.id,)]
    assert (await ada.api.get("/api/user", token=ada.token)).status == 200, "the session goes on"


# What is recorded, and who is told


async def test_enabling_and_disabling_are_told_to_every_organization_that_the_person_takes_part_in(ada: Ada, pool: Pool) -> None:
    orgs = {slug: await add_organization(pool, slug) for slug in ("acme", "twin", "loose")}
    for slug, org in orgs.items():
        await add_member(pool, org, ada.account.id, confirmed=slug != "loose")
    await ada.enabled()
    await ada.disable()
    names = ("enabled", "disabled")
    taking_part = {orgs["acme"], orgs["twin"]}
    for table, column, prefix in (("audit_log", "action", "security"), ("events", "name", "security"), ("events", "name", "user")):
        for name in names:
            query = f"select org_id, target_id, actor_id from {table} where {column} = %s"  # noqa: S608
            rows = await run_sql(pool, query, f"{prefix}.mfa.{name}")
            assert {row[0] for row in rows} == taking_part
            assert {row[1:] for row in rows} == {(str(ada.account.id), ada.account.id)}
    assert await run_sql(pool, "select 1 from audit_log where action like 'user.%%'") == []


async def test_whoever_is_in_no_organization_is_recorded_in_the_log_of_the_platform(ada: Ada, pool: Pool) -> None:
    await ada.enabled()
    assert await run_sql(pool, "select org_id, action from audit_log") == [(None, "security.mfa.enabled")]


@pytest.mark.slow
async def test_the_log_of_the_second_factor_tells_everything(ada: Ada, pool: Pool, clock: FakeClock) -> None:
    app = await ada.pending()
    clock.advance(STEP)
    await ada.verify(app.wrong())
    clock.advance(STEP)
    await ada.verify(app.code())
    clock.advance(STEP)
    await ada.may_show(app.wrong())
    clock.advance(STEP)
    await ada.show(app.code())
    clock.advance(STEP)
    await ada.regenerate()
    clock.advance(STEP)
    await ada.disable()
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
    assert rows == [(ada.account.id, False)]


async def test_every_change_is_mailed_to_the_person(ada: Ada, pool: Pool, sent: FakeMailTransport, clock: FakeClock) -> None:
    app = await ada.enabled()
    await ada.regenerate()
    clock.advance(STEP)
    await ada.show(app.code())
    await ada.disable()
    await deliver(ada.ports)
    subjects = {letter.subject.removesuffix(" - Gatehouse"): letter.to for letter in sent.letters}
    assert subjects == dict.fromkeys(
        ["Two-factor authentication is on", "You have new backup codes", "Two-factor authentication is off"], EMAIL
    )
    assert {kind for kind, _ in await mailed(pool)} == {EmailKind.MFA_ENABLED, EmailKind.BACKUP_CODES_REGENERATED, EmailKind.MFA_DISABLED}


# Guessing (security.md M-2)


async def test_ten_wrong_codes_block_every_check_of_the_account(ada: Ada, clock: FakeClock) -> None:
    app = await ada.pending()
    assert [refused(await ada.verify(app.wrong())) for _ in range(10)] == [BAD] * 10
    blocked = await ada.verify(app.code())
    assert refused(blocked) == LIMITED
    assert blocked.headers["Retry-After"] == "900"
    assert "code" in blocked.json["error"]
    assert "password" not in blocked.json["error"]
    with pytest.raises(TooManyAttempts):
        await show(ada.ports, ada.account, app.code())
    clock.advance(timedelta(seconds=900))
    ada.token = (await sign_in(ada.ports, ada.account)).access_token
    app = await ada.pending()
    assert [refused(await ada.verify(app.wrong())) for _ in range(9)] == [BAD] * 9
    assert (await ada.verify(app.code())).status == 200


async def test_guesses_at_a_login_and_at_enabling_are_counted_together(ada: Ada, pool: Pool) -> None:
    app = await ada.enabled()
    assert [await ada.may_show("ABCD-EFGH") for _ in range(5)] == [False] * 5
    await run_sql(pool, "update users set mfa_enabled_at = null")
    app = await ada.pending()
    assert [refused(await ada.verify(app.wrong())) for _ in range(5)] == [BAD] * 5
    assert refused(await ada.verify(app.code())) == LIMITED


@pytest.mark.slow
async def test_a_right_code_forgets_the_wrong_ones(ada: Ada, clock: FakeClock) -> None:
    app = await ada.pending()
    assert [refused(await ada.verify(app.wrong())) for _ in range(9)] == [BAD] * 9
    assert (await ada.verify(app.code())).status == 200
    for _ in range(3):
        clock.advance(STEP)
        assert [await ada.may_show(app.wrong()) for _ in range(9)] == [False] * 9
        assert await ada.may_show(app.code())


async def test_another_session_changes_nothing_about_the_count(ada: Ada) -> None:
    app = await ada.pending()
    for _ in range(10):
        ada.token = (await sign_in(ada.ports, ada.account)).access_token
        assert refused(await ada.verify(app.wrong())) == BAD
    assert refused(await ada.verify(app.code())) == LIMITED


# Who may


ALL = [("GET", "/status"), ("POST", "/setup"), ("POST", "/verify"), ("DELETE", ""), ("POST", "/backup-codes/regenerate")]


@pytest.mark.parametrize(("method", "path"), ALL)
async def test_nobody_gets_in_without_a_token(api: Api, method: str, path: str) -> None:
    assert refused(await api.call(method, PATH + path)) == UNAUTHORIZED


@pytest.mark.parametrize(("method", "path"), ALL)
@pytest.mark.parametrize("who", ["impersonator", "application"])
async def test_an_impersonator_and_an_application_only_look(ada: Ada, pool: Pool, acme_id: UUID, who: str, method: str, path: str) -> None:
    if who == "impersonator":
        owner = await add_account(ada.ports, "owner@platform.example", None, is_platform_owner=True)
        token = await impersonate(ada.ports, owner, ada.account)
    else:
        service = await add_service(pool, acme_id, "shop")
        token = (await sign_in_to(ada.ports, pool, service, ada.account)).access_token
    app = await ada.pending()
    answer = await ada.api.call(method, PATH + path, None if method == "GET" else {"code": app.code()}, token=token)
    assert (answer.status if method == "GET" else refused(answer)) == (200 if method == "GET" else FORBIDDEN)
    assert await ada.status() == (False, False)
    assert await logged(pool) == ["mfa_setup_initiated"]


@pytest.fixture
async def acme_id(pool: Pool) -> UUID:
    return await add_organization(pool, "acme")


async def test_what_one_does_touches_nobody_else(ada: Ada, pool: Pool, clock: FakeClock) -> None:
    eve = await add_account(ada.ports, "eve@example.com", None)
    app = await add_mfa(ada.ports, eve)
    stored = "select m.*, u.mfa_enabled_at from mfa m join users u on u.id = m.user_id where u.id = %s"
    codes = "select * from backup_codes where user_id = %s order by code_hash"
    before = await run_sql(pool, stored, eve.id), await run_sql(pool, codes, eve.id)
    mine = await ada.enabled()
    await ada.regenerate()
    clock.advance(STEP)
    assert not await ada.may_show(app.code())
    assert not await ada.may_show(app.backup_codes[0])
    await ada.show(mine.code())
    await ada.disable()
    assert (await run_sql(pool, stored, eve.id), await run_sql(pool, codes, eve.id)) == before


async def test_of_an_account_that_is_gone_nothing_is_told(ada: Ada, pool: Pool) -> None:
    await run_sql(pool, "delete from users")
    for act in (mfa.get_status, mfa.start_setup, mfa.disable, mfa.regenerate_backup_codes):
        with pytest.raises(AccountGone):
            await act(ada.ports, ada.person)
    with pytest.raises(mfa_rules.NotSetUp):
        await mfa.confirm_setup(ada.ports, ada.person, "123456")
    assert await logged(pool) == []
