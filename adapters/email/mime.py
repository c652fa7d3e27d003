"""Emails as MIME messages, and the sender address in the operator's settings."""

from datetime import UTC
from email import policy
from email.errors import HeaderParseError
from email.headerregistry import Address
from email.message import EmailMessage as MimeMessage
from email.parser import HeaderParser
from typing import Any, Final

from core.kernel.values import is_printable
from ports import outside

MAX_LINE_LENGTH: Final = 998  # RFC 5322 section 2.1.1

_POLICY: Final = policy.SMTP.clone(cte_type="7bit")  # servers are not required to support 8BITMIME


def parse_sender(text: str) -> Address:
    """Parse `SSO_MAIL_FROM`, such as `Gatehouse <gatehouse@example.com>`.

    Raises: ValueError. The error's text is a clause that continues the setting's name.
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


def to_mime(message: outside.EmailMessage, sender: Address) -> MimeMessage:
    """Return the email as a MIME message with a text and an HTML part (RFC 5322).

    Raises: MailRefused if a header contains a control character (security E-4), or if the message cannot be built.
    """
    if not all(is_printable(header) for header in (message.message_id, message.to, message.subject)):
        raise outside.MailRefused("a header of the email contains a control character")
    if "\0" in message.text or "\0" in message.html:
        raise outside.MailRefused("the email contains a NUL")
    mime = MimeMessage(policy=_POLICY)
    try:
        mime["From"] = sender
        mime["To"] = Address(addr_spec=message.to)
        # The library decodes encoded words (RFC 2047) when a header is set, and some versions then
        # write the line breaks in them. A name such as "=?utf-8?q?x=0D=0ABcc:...?=" would add
        # headers (security E-4).
        mime["Subject"] = message.subject.replace("=?", "= ?")
        mime["Date"] = message.date.astimezone(UTC)
        mime["Message-ID"] = message.message_id
        # Asks automatic responders, such as vacation notices, not to reply (RFC 3834 section 5).
        mime["Auto-Submitted"] = "auto-generated"
        mime.set_content(message.text, cte=_transfer_encoding(message.text))
        mime.add_alternative(message.html, subtype="html", cte=_transfer_encoding(message.html))
    except (ValueError, HeaderParseError) as error:
        raise outside.MailRefused(f"the email cannot be written as a message: {type(error).__name__}") from None
    return mime


def _transfer_encoding(body: str) -> str:
    # By default, the library encodes every body with a line over 78 characters. Operators copy
    # links from files in the mail folder, so a link must stay as it is.
    is_plain = body.isascii() and all(len(line) <= MAX_LINE_LENGTH for line in body.splitlines())
    return "7bit" if is_plain else "quoted-printable"
