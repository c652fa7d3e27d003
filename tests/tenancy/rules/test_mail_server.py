"""What an organization can choose as its mail server (decisions, point 208; security.md E-4 and W-1)."""

from typing import Any

import pytest

from core.kernel.values import Email, new_id
from core.tenancy.mail_server_rules import (
    MailCredentialsIncomplete,
    MailCredentialsInvalid,
    MailHostInvalid,
    MailServer,
    MailPortInvalid,
    new_server,
    parse_host,
)

PASSWORD = "s3cr3t-pa55word"


def server(**changes: Any) -> MailServer:
    least: dict[str, Any] = {"host": "mail.acme.example", "port": 587, "username": None, "password": None, "from_name": None, "tls": True}
    return new_server(new_id(), from_email=Email("post@acme.example"), **{**least, **changes})


@pytest.mark.parametrize(
    ("given", "stored"),
    [
        *((name, name) for name in ("mail.acme.example", "mail", "localhost", "127.1", "xn--bcher-kva.example", "a" * 63, "192.0.2.1")),
        *((" Mail.ACME.example ", "mail.acme.example"), ("2001:DB8:0::1", "2001:db8::1")),
    ],
)
def test_a_host_is_a_name_or_an_address(given: str, stored: str) -> None:
    assert parse_host(given) == server(host=given).host == stored


@pytest.mark.parametrize(
    "host",
    [
        *("", " ", ".", "mail.", ".mail", "mail..acme", "-mail", "mail-", "ma il", "ma_il", "mail:25", "mail/x", "user@mail", "a" * 64),
        *("a." * 127 + "a", "b\u00fccher.example", "[::1]", "fe80::1%eth0", "::1%25eth0", "::1%", "smtp://mail", "mail\r\nx", "mail\0"),
    ],
)
def test_what_is_no_host_is_refused(host: str) -> None:
    with pytest.raises(MailHostInvalid):
        server(host=host)


@pytest.mark.parametrize("port", [25, 465, 587, 1024, 2525, 65535])
def test_a_port_is_one_of_mail_or_a_high_one(port: int) -> None:
    assert server(port=port).port == port


@pytest.mark.parametrize("port", [-25, 0, 1, 22, 24, 26, 80, 443, 466, 588, 1023, 65536, 2**31])
def test_other_ports_are_refused(port: int) -> None:
    with pytest.raises(MailPortInvalid):
        server(port=port)


def test_a_user_name_comes_with_a_password() -> None:
    assert not server().has_password
    assert server(username="robot", password=PASSWORD).has_password
    for given in ({"username": "robot"}, {"password": PASSWORD}):
        with pytest.raises(MailCredentialsIncomplete):
            server(**given)


@pytest.mark.parametrize("text", ["", "r\u00f6bot", "a\tb", "robot\r\nRSET", "a\0b", "\x7f", "\udc80"])
def test_what_cannot_be_sent_to_a_mail_server_is_refused(text: str) -> None:
    for given in ({"username": text, "password": PASSWORD}, {"username": "robot", "password": text}):
        with pytest.raises(MailCredentialsInvalid):
            server(**given)


def test_a_password_is_not_shown() -> None:
    assert PASSWORD not in repr(server(username="robot", password=PASSWORD))
