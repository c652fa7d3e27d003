"""Emails as MIME messages, and the sender address in the operator's settings."""

import quopri
import re
import secrets
from datetime import UTC
from email import policy
from email.errors import HeaderParseError
from email.headerregistry import Address
from email.parser import HeaderParser
from email.utils import format_datetime
from functools import lru_cache
from typing import Any, Final

from core.kernel.values import is_printable
from ports.outside import EmailMessage, MailRefused

MAX_LINE_LENGTH: Final = 998  # RFC 5322 section 2.1.1

_MAX_PLAIN_LINE: Final = 80  # characters of a header line that is not folded, with its line break (RFC 5322 section 2.1.1)
_ATOM: Final = r"[A-Za-z0-9!#$%&'*+/=?^_`{|}~-]+"  # RFC 5322 section 3.2.3
_PLAIN_ADDRESS: Final = re.compile(rf"{_ATOM}(\.{_ATOM})*@[A-Za-z0-9-]+(\.[A-Za-z0-9-]+)*")
_POLICY: Final = policy.SMTP.clone(cte_type="7bit")  # servers are not required to support 8BITMIME


def parse_sender(text: str) -> Address:
    """Parse `SSO_MAIL_FROM`, such as `Gatehouse <gatehouse@example.com>`.

    Raises: ValueError. Its text is a clause that continues the name of the setting.
    """
    if not is_printable(text):
        raise ValueError("must not contain control characters")
    try:
        header: Any = HeaderParser(policy=_POLICY).parsestr(f"From: {text}\n\n")["from"]
        addresses: tuple[Address, ...] = header.addresses
        defects = header.defects
    except (HeaderParseError, IndexError, ValueError):
        addresses, defects = (), ()
    if len(addresses) != 1 or defects or not addresses[0].domain or not addresses[0].addr_spec.isascii():
        raise ValueError("must be one address, such as Gatehouse <gatehouse@example.com>")
    return addresses[0]


def to_mime(message: EmailMessage, sender: Address) -> bytes:
    """Return the email as a MIME message with a text and an HTML part (RFC 5322).

    The standard library writes only the headers that must be folded or encoded. It takes 40 times as
    long for a whole message.

    Raises: MailRefused if a header contains a control character (security E-4), or if the message cannot be built.
    """
    if not all(is_printable(header) for header in (message.message_id, message.to, message.subject)):
        raise MailRefused("a header of the email contains a control character")
    if "\0" in message.text or "\0" in message.html:
        raise MailRefused("the email contains a NUL")
    boundary = f"=_{secrets.token_hex(16)}"
    try:
        return b"".join(
            (
                _sender_line(str(sender)),
                _recipient_line(message.to),
                # The library decodes encoded words (RFC 2047) when a header is set, and some versions then
                # write the line breaks in them. A name such as "=?utf-8?q?x=0D=0ABcc:...?=" would add
                # headers (security E-4).
                _text_line("Subject", message.subject.replace("=?", "= ?")),
                f"Date: {format_datetime(message.date.astimezone(UTC))}\r\n".encode(),
                _text_line("Message-ID", message.message_id),
                # Asks automatic responders, such as vacation notices, not to reply (RFC 3834 section 5).
                b"Auto-Submitted: auto-generated\r\nMIME-Version: 1.0\r\n",
                f'Content-Type: multipart/alternative; boundary="{boundary}"\r\n\r\n'.encode(),
                _part(boundary, "plain", message.text),
                _part(boundary, "html", message.html),
                f"--{boundary}--\r\n".encode(),
            )
        )
    except (ValueError, HeaderParseError) as error:
        raise MailRefused(f"the email cannot be written as a message: {type(error).__name__}") from None


@lru_cache(maxsize=128)  # one for the platform, and one for each organization with its own server
def _sender_line(sender: str) -> bytes:
    return _fold("From", sender)


def _recipient_line(address: str) -> bytes:
    line = f"To: {address}\r\n"
    is_plain = _PLAIN_ADDRESS.fullmatch(address) and len(line) <= _MAX_PLAIN_LINE
    return line.encode() if is_plain else _fold("To", Address(addr_spec=address))


def _text_line(name: str, text: str) -> bytes:
    line = f"{name}: {text}\r\n"
    is_plain = text.isascii() and text == text.strip() and len(line) <= _MAX_PLAIN_LINE
    return line.encode() if is_plain else _fold(name, text)


def _fold(name: str, value: object) -> bytes:
    """Return a header line that is folded (RFC 5322 section 2.2.3) and encoded (RFC 2047) where necessary."""
    return _POLICY.fold_binary(*_POLICY.header_store_parse(name, value))


def _part(boundary: str, subtype: str, body: str) -> bytes:
    # By default, the library encodes every body with a line over 78 characters. Operators copy
    # links from files in the mail folder, so a link must stay as it is.
    lines = body.encode().splitlines()
    content, encoding = b"".join(line + b"\r\n" for line in lines), "7bit"
    if not body.isascii() or any(len(line) > MAX_LINE_LENGTH for line in lines):
        content, encoding = quopri.encodestring(content.replace(b"\r\n", b"\n")).replace(b"\n", b"\r\n"), "quoted-printable"
    head = f'--{boundary}\r\nContent-Type: text/{subtype}; charset="utf-8"\r\nContent-Transfer-Encoding: {encoding}\r\n\r\n'
    return b"%s%s\r\n" % (head.encode(), content)
