"""Page forms: the accepted fields, and refusing forms that another site sends (security G-2, N-3)."""

from collections.abc import Callable, Iterable
from urllib.parse import parse_qsl, urlencode

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from quart_trio import QuartTrio

from entrypoints.http.edge.forms import decode_form
from entrypoints.http.edge.queries import MAX_FIELDS
from entrypoints.http.pages.eventing.webhooks import GROUPS
from ports import Ports
from tests.fakes.outside import FakeMailTransport
from tests.support.builders import BASE_URL, EMAIL, NEW_PASSWORD, PASSWORD, Answer, Api, add_account, deliver, link
from tests.support.direct import ask

PATH = "/auth/reset-password"
FORM = b"application/x-www-form-urlencoded"


async def submit(
    app: QuartTrio, body: bytes, headers: Iterable[tuple[bytes, bytes]] = (), content_type: bytes | None = FORM, *, json: bool = False
) -> Answer:
    sent = [*headers, *([(b"content-type", content_type)] if content_type is not None else [])]
    return await ask(app, "POST", PATH, headers=[*sent, (b"accept", b"application/json" if json else b"text/html")], body=body)


@pytest.fixture
async def token(api: Api, ports: Ports, sent: FakeMailTransport) -> str:
    """The token in a password reset link."""
    await add_account(ports)
    await api.post("/api/auth/forgot-password", {"email": EMAIL})
    await deliver(ports)
    return link(sent.emails[-1])


def filled(token: str, password: str = NEW_PASSWORD) -> bytes:
    return urlencode({"token": token, "new_password": password}).encode()


async def test_a_form_of_the_page_is_accepted(app: QuartTrio, api: Api, token: str) -> None:
    answer = await submit(app, filled(token, "pässwörd & = + % 😀"))
    assert answer.status == 200
    assert answer.headers["Content-Type"] == "text/html; charset=utf-8"
    assert (await api.login(password="pässwörd & = + % 😀")).status == 200


OWN_ORIGIN: list[list[tuple[bytes, bytes]]] = [
    [],
    [(b"sec-fetch-site", b"same-origin")],
    [(b"origin", BASE_URL.encode())],
    [(b"origin", b"null")],  # sent if the page's referrer policy is no-referrer
    [(b"origin", b"null"), (b"sec-fetch-site", b"same-origin")],
]
OTHER_ORIGINS: list[list[tuple[bytes, bytes]]] = [
    [(b"sec-fetch-site", b"cross-site")],
    [(b"sec-fetch-site", b"same-site")],
    [(b"sec-fetch-site", b"none")],
    [(b"sec-fetch-site", b"SAME-ORIGIN")],
    [(b"sec-fetch-site", b"")],
    [(b"sec-fetch-site", b"cross-site"), (b"origin", BASE_URL.encode())],
    [(b"origin", b"https://evil.example")],
    [(b"origin", b"http://gatehouse.test.evil.example")],
    [(b"origin", b"https://gatehouse.test")],
    [(b"origin", b"http://gatehouse.test:8080")],
    [(b"origin", b"")],
    [(b"origin", b"\xff")],
    [(b"host", b"evil.example"), (b"origin", b"http://evil.example")],
]


@pytest.mark.parametrize("headers", OWN_ORIGIN)
async def test_a_form_from_our_origin_is_accepted(app: QuartTrio, token: str, headers: list[tuple[bytes, bytes]]) -> None:
    assert (await submit(app, filled(token), headers)).status == 200


@pytest.mark.parametrize("headers", OTHER_ORIGINS)
async def test_a_form_from_another_site_changes_nothing(app: QuartTrio, api: Api, token: str, headers: list[tuple[bytes, bytes]]) -> None:
    answer = await submit(app, filled(token), headers, json=True)
    assert (answer.status, answer.code) == (403, "FORBIDDEN")
    assert (await api.login(password=PASSWORD)).status == 200
    assert (await submit(app, filled(token))).status == 200  # the link is still valid


@pytest.mark.parametrize(
    "content_type", [None, b"", b"text/plain", b"application/json", b"multipart/form-data; boundary=x", b"application/x-www-form", b"\xff"]
)
async def test_other_content_types_are_refused(app: QuartTrio, token: str, content_type: bytes | None) -> None:
    answer = await submit(app, filled(token), content_type=content_type, json=True)
    assert (answer.status, answer.code) == (415, "UNSUPPORTED_MEDIA_TYPE")


@pytest.mark.parametrize("content_type", [FORM + b"; charset=utf-8", FORM.upper(), FORM + b"; charset=utf-16"])
async def test_a_form_is_utf_8_whatever_the_charset_says(app: QuartTrio, token: str, content_type: bytes) -> None:
    assert (await submit(app, filled(token), content_type=content_type)).status == 200


MALFORMED = {
    "raw bytes": "token=x&new_password=pässwörd".encode(),
    "invalid UTF-8": b"token=x&new_password=%ff%fe",
    "an encoded surrogate": b"token=x&new_password=%ed%a0%80",
    "501 fields": b"&".join(b"f%d=1" % number for number in range(501)),
    "501 of one name": b"&".join([b"token=1"] * 501),
}


@pytest.mark.parametrize("name", MALFORMED)
async def test_a_malformed_form_is_refused(app: QuartTrio, name: str) -> None:
    answer = await submit(app, MALFORMED[name], json=True)
    assert (answer.status, answer.code, answer.json["error"]) == (
        400,
        "BAD_REQUEST",
        "The form is not valid. Send at most 500 fields, percent-encoded in UTF-8.",
    )


@pytest.mark.parametrize("body", [b"", b"&", b"=", b"%", b"new_password=x", b"token=", b"token=%00&new_password=%00", b"token[]=1"])
async def test_a_form_without_a_valid_token_is_refused(app: QuartTrio, body: bytes) -> None:
    answer = await submit(app, body)
    assert answer.status == 400
    assert answer.headers["Content-Type"].startswith("text/html")


async def test_a_hundred_fields_are_accepted(app: QuartTrio, token: str) -> None:
    padding = b"&".join(b"f%d=1" % number for number in range(98))
    assert (await submit(app, padding + b"&" + filled(token))).status == 200


async def test_a_repeated_field_is_refused_and_uses_nothing_up(app: QuartTrio, token: str) -> None:
    for repeated in (b"new_password=something+else", b"token=x"):
        answer = await submit(app, repeated + b"&" + filled(token))
        assert (answer.status, "twice" in answer.text) == (400, True)
    assert (await submit(app, filled(token))).status == 200


async def test_a_form_over_the_limit_is_refused(app: QuartTrio, token: str) -> None:
    assert (await submit(app, filled(token) + b"&x=" + b"x" * 256 * 1024)).status == 413
    assert (await submit(app, filled(token))).status == 200


async def test_typed_values_come_back_escaped_and_passwords_never(app: QuartTrio, token: str) -> None:
    weak = await submit(app, filled(token, "<b>1"))
    assert weak.status == 400
    assert "at least 8 characters" in weak.text
    assert "<b>1" not in weak.text  # a password is never shown, even to its owner
    assert f'value="{token}"' in weak.text
    unknown = await submit(app, filled('"><script>alert(1)</script>', "1"))
    assert unknown.status == 400
    assert "<script>alert" not in unknown.text


async def test_a_refused_password_does_not_use_up_the_link(app: QuartTrio, api: Api, token: str) -> None:
    for weak in ("", "short", "x" * 129, "😀" * 200):
        assert (await submit(app, filled(token, weak))).status == 400
    assert (await api.login()).status == 200
    assert (await submit(app, filled(token))).status == 200
    assert (await submit(app, filled(token))).status == 400


PIECES = ("%2B", "%2F", "%3D", "%2b", "%25", "%C3%A9", "%C3", "%", "2B", "+", "=", "&", "a", "\0", ";")


@example("&" * MAX_FIELDS)
@given(st.lists(st.sampled_from(PIECES)).map("".join))
def test_a_form_is_decoded_as_the_standard_library_does(text: str) -> None:
    def decode(by: Callable[[str], list[tuple[str, str]]]) -> list[tuple[str, str]] | None:
        try:
            return by(text)
        except ValueError:
            return None

    assert decode(decode_form) == decode(lambda sent: parse_qsl(sent, keep_blank_values=True, errors="strict", max_num_fields=MAX_FIELDS))


def test_a_form_can_name_every_event_type() -> None:
    assert sum(map(len, GROUPS.values())) + 20 < MAX_FIELDS
