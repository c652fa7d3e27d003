"""The setup of the second factor (security M-1, M-4)."""

import re
import shutil
import subprocess
from datetime import timedelta
from urllib.parse import parse_qs, urlsplit
from xml.etree import ElementTree as ET

import pytest
import segno

from adapters.postgres.engine.pool import Pool
from core.accounts import mfa
from core.accounts.model.mfa import CODE_ALPHABET
from tests.accounts.api.mfa.mfa_user import PATH, MfaUser, logged_events, queued_emails
from tests.fakes.outside import FakeClock
from tests.support.builders import run_sql, sign_in
from tests.support.mfa import STEP, add_mfa
from tests.support.refusals import BAD, refused

MALFORMED_CODES = [
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


async def test_a_setup_has_no_effect_until_it_is_confirmed(user: MfaUser, pool: Pool) -> None:
    assert await user.status() == (False, False)
    app = await user.start_setup()
    assert await user.status() == (False, False)
    assert not await user.accepts_code(app.code()), "no code is correct before the confirmation"
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
    first, second = await user.start_setup(), await user.start_setup()
    assert first.secret != second.secret
    assert refused(await user.verify(first.code())) == BAD
    assert (await user.verify(second.code())).status == 200


async def test_a_pending_secret_expires_after_15_minutes(user: MfaUser, clock: FakeClock) -> None:
    app = await user.start_setup()
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
    pending_setup = await mfa.find_pending_setup(user.ports, person)
    assert pending_setup is not None
    assert (pending_setup.secret, pending_setup.uri) == (setup["secret"], setup["qr_code_uri"])
    clock.advance(timedelta(minutes=15))
    assert await mfa.find_pending_setup(user.ports, person) is None
    await add_mfa(user.ports, user.account)
    assert await mfa.find_pending_setup(user.ports, person) is None, "a confirmed secret is never shown"


@pytest.mark.parametrize("steps", [-1, 0, 1])
async def test_a_code_of_an_adjacent_step_is_accepted(user: MfaUser, steps: int) -> None:
    app = await user.start_setup()
    for far in (-2, 2):
        assert refused(await user.verify(app.code(far))) == BAD
    assert (await user.verify(app.code(steps))).status == 200


async def test_malformed_codes_are_refused_and_not_counted(user: MfaUser, pool: Pool) -> None:
    app = await user.start_setup()
    for code in MALFORMED_CODES:
        assert refused(await user.verify(code)) == BAD, code
    assert await run_sql(pool, "select 1 from guesses") == []
    assert await logged_events(pool) == ["mfa_setup_initiated"]
    assert (await user.verify(app.code())).status == 200


async def test_a_body_without_a_code_is_refused(user: MfaUser) -> None:
    for body in ({}, {"code": None}, {"code": 123456}, {"code": ["123456"]}, {"code": "1" * 5000}):
        assert refused(await user.api.post(f"{PATH}/verify", body, token=user.token)) == BAD, body


async def test_verifying_without_a_setup_is_refused(user: MfaUser, pool: Pool) -> None:
    answer = await user.verify("123456")
    assert refused(answer) == BAD
    assert await run_sql(pool, "select 1 from guesses") == []
    assert await logged_events(pool) == []


async def test_setup_gives_ten_backup_codes_of_unambiguous_characters(user: MfaUser) -> None:
    codes = (await user.enable()).backup_codes
    assert len(set(codes)) == len(codes) == 10
    assert all(re.fullmatch(f"[{CODE_ALPHABET}]{{4}}-[{CODE_ALPHABET}]{{4}}", code) for code in codes)


async def test_setup_and_verify_are_refused_while_the_second_factor_is_on(user: MfaUser, pool: Pool, clock: FakeClock) -> None:
    app = await user.enable()
    clock.advance(STEP)
    before = await run_sql(pool, "select * from mfa"), await logged_events(pool), await queued_emails(pool)
    for answer in (await user.setup(), await user.verify(app.code()), await user.verify(app.wrong())):
        assert refused(answer) == BAD
        assert "already" in answer.json["error"]
    assert (await run_sql(pool, "select * from mfa"), await logged_events(pool), await queued_emails(pool)) == before
    assert await user.accepts_code(app.code()), "the secret is unchanged, and its code unused"


@pytest.mark.slow
async def test_secrets_are_returned_once_and_never_stored_in_plain_text(user: MfaUser, pool: Pool) -> None:
    app = await user.start_setup()
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
        rows = str(await run_sql(pool, f"select * from {table}"))  # noqa: S608
        assert not any(secret in rows for secret in (app.secret, app.code(), *codes)), table
