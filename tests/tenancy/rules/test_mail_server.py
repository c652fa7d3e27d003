"""The mail server settings that an organization can choose (security E-4, W-1)."""

from typing import Any

import pytest

from core.kernel.values import Email, new_id
from core.tenancy.model.settings import (
    MailCredentialsIncomplete,
    MailHostInvalid,
    MailPasswordInvalid,
    MailPortInvalid,
    MailServer,
    MailUsernameInvalid,
    parse_host,
    validate,
)

PASSWORD = "s3cr3t-pa55word"


def validated(**changes: Any) -> MailServer:
    settings: dict[str, Any] = {
        "org_id": new_id(),
        "host": "mail.acme.example",
        "port": 587,
        "username": None,
        "password": None,
        "from_email": Email("post@acme.example"),
        "from_name": None,
        "tls": True,
    }
    return validate(MailServer(**{**settings, **changes}))


def test_a_host_is_a_name_or_an_address_in_canonical_form() -> None:
    names = ["mail.acme.example", "mail", "localhost", "127.1", "xn--bcher-kva.example", "a" * 63, "192.0.2.1"]
    for host, expected in [
        *((name, name) for name in names),
        (" Mail.ACME.example ", "mail.acme.example"),
        ("B\u00fccher.example", "xn--bcher-kva.example"),
        ("2001:DB8:0::1", "2001:db8::1"),
    ]:
        assert parse_host(host) == validated(host=host).host == expected


def test_other_hosts_are_refused() -> None:
    for host in [
        *("", " ", ".", "mail.", ".mail", "mail..acme", "-mail", "mail-", "ma il", "ma_il", "mail:25", "mail/x", "user@mail", "a" * 64),
        *("a." * 127 + "a", "[::1]", "fe80::1%eth0", "::1%25eth0", "::1%", "smtp://mail", "mail\r\nx", "mail\0"),
    ]:
        with pytest.raises(MailHostInvalid):
            validated(host=host)


def test_a_port_is_a_mail_port_or_above_1023() -> None:
    for port in (25, 465, 587, 1024, 2525, 65535):
        assert validated(port=port).port == port
    for port in (-25, 0, 1, 22, 24, 26, 80, 443, 466, 588, 1023, 65536, 2**31):
        with pytest.raises(MailPortInvalid):
            validated(port=port)


def test_a_username_needs_a_password_and_a_password_a_username() -> None:
    assert not validated().has_password
    assert validated(username="robot", password=PASSWORD).has_password
    for incomplete in ({"username": "robot"}, {"password": PASSWORD}):
        with pytest.raises(MailCredentialsIncomplete):
            validated(**incomplete)


def test_credentials_that_mail_servers_do_not_accept_are_refused() -> None:
    for text in ("", "r\u00f6bot", "a\tb", "robot\r\nRSET", "a\0b", "\x7f", "\udc80"):
        with pytest.raises(MailUsernameInvalid):
            validated(username=text, password=PASSWORD)
        with pytest.raises(MailPasswordInvalid):
            validated(username="robot", password=text)


def test_a_password_is_not_in_the_repr() -> None:
    assert PASSWORD not in repr(validated(username="robot", password=PASSWORD))
