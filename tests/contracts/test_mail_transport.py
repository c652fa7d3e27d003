"""The port for mail transport, and all its implementations.

These are the fake, SMTP through a server (of the platform or an organization), and the folder.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from email import policy
from email.message import EmailMessage as MimeMessage
from email.parser import BytesParser
from pathlib import Path

import pytest

from adapters.email.transports import FolderTransport, MailRouter, OrganizationSmtp, SmtpTransport
from adapters.http.guard import Guard, parse_allowed_targets
from core.kernel.values import Email, new_id
from core.tenancy.model.settings import MailServer
from ports.outside import EmailMessage, MailRefused, MailTransport
from tests.fakes.outside import FakeMailTransport
from tests.fakes.smtp_sink import SmtpSink
from tests.support.builders import mail_server
from tests.tables import table

MESSAGE = EmailMessage(
    message_id="<6f1c1f2e-64a5-4a2a-9a42-5a8f3f9b7c11@id.example.com>",
    date=datetime(2026, 3, 4, 5, 6, 7, 890, tzinfo=UTC),
    to=Email("ada@example.com"),
    subject="Gr\u00fc\u00dfe an Ada",
    text="Open this:\n\nhttps://id.example.com/auth/verify-email?token=0d9f9d4e-7f07-4c39-a9a4-0b1f6b8c1a52\n\n.\nGr\u00fc\u00dfe\n",
    html="<p>Open <a href='https://id.example.com/'>this</a>.</p>\n",
)


@dataclass(frozen=True, slots=True)
class ReceivedEmail:
    """A transport, and the emails that arrive through it."""

    message_id: str
    date: datetime
    to: str
    subject: str
    text: str
    html: str


@dataclass(frozen=True, slots=True)
class Case:
    transport: MailTransport
    arrived: Callable[[], list[ReceivedEmail]]
    server: MailServer | None = None

    async def send(self, email_message: EmailMessage) -> None:
        await self.transport.send(email_message, self.server)


def to_received(email_message: EmailMessage) -> ReceivedEmail:
    return ReceivedEmail(
        email_message.message_id,
        email_message.date.replace(microsecond=0),
        email_message.to,
        email_message.subject,
        email_message.text,
        email_message.html,
    )


def parse_message(message: MimeMessage) -> ReceivedEmail:
    text, html = message.get_body(("plain",)), message.get_body(("html",))
    assert text is not None
    assert html is not None
    date = message["Date"].datetime
    assert isinstance(date, datetime)
    subject, to, message_id = (str(message[name]) for name in ("Subject", "To", "Message-ID"))
    bodies = [part.get_content().replace("\r\n", "\n") for part in (text, html)]
    return ReceivedEmail(message_id, date, to, subject, *bodies)


def fake() -> Iterator[Case]:
    transport = FakeMailTransport()
    yield Case(transport, lambda: [to_received(email_message) for email_message in transport.emails])


def dispatch(platform: SmtpTransport | FolderTransport) -> MailRouter:
    return MailRouter(platform, OrganizationSmtp(Guard(parse_allowed_targets("127.0.0.1"))))


def smtp() -> Iterator[Case]:
    with SmtpSink() as sink:
        transport = dispatch(SmtpTransport(sink.url, "Gatehouse <gatehouse@example.com>"))
        yield Case(transport, lambda: [parse_message(message) for message in sink.messages])


def own_server(directory: Path) -> Iterator[Case]:
    with SmtpSink() as sink:
        server = mail_server(new_id(), host="127.0.0.1", port=sink.port, tls=False)
        transport = dispatch(FolderTransport(directory, "Gatehouse <gatehouse@example.com>"))
        yield Case(transport, lambda: [parse_message(message) for message in sink.messages], server)
        assert list(directory.iterdir()) == []


def folder(directory: Path) -> Iterator[Case]:
    def arrived() -> list[ReceivedEmail]:
        parser = BytesParser(MimeMessage, policy=policy.default)
        return [parse_message(parser.parsebytes(path.read_bytes())) for path in sorted(directory.iterdir())]

    yield Case(dispatch(FolderTransport(directory, "Gatehouse <gatehouse@example.com>")), arrived)


@pytest.fixture(params=["fake", "smtp", "own_server", "folder"])
def case(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Case]:
    match request.param:
        case "fake":
            yield from fake()
        case "smtp":
            yield from smtp()
        case "own_server":
            yield from own_server(tmp_path / "mail")
        case _:
            yield from folder(tmp_path / "mail")


async def test_an_email_arrives_unchanged(case: Case) -> None:
    await case.send(MESSAGE)
    assert case.arrived() == [to_received(MESSAGE)]


async def test_an_email_that_is_sent_again_has_the_same_message_id(case: Case) -> None:
    await case.send(MESSAGE)
    await case.send(MESSAGE)
    assert set(case.arrived()) == {to_received(MESSAGE)}


async def test_emails_arrive_in_their_order(case: Case) -> None:
    emails = [
        replace(MESSAGE, message_id=f"<{number}@id.example.com>", date=MESSAGE.date.replace(second=20 - number), subject=str(number))
        for number in range(9, 0, -1)
    ]
    for email_message in emails:
        await case.send(email_message)
    assert case.arrived() == [to_received(email_message) for email_message in emails]


@table("character", ["\r", "\n", "\0", "\x1b", "\x85", "\u202e", "\ud800"])
@table("field", ["to", "subject", "message_id"])
async def test_a_control_character_in_a_header_is_refused_before_anything_is_sent(case: Case, field: str, character: str) -> None:
    broken = f"{getattr(MESSAGE, field)[:-1]}{character}Bcc: eve@example.com{getattr(MESSAGE, field)[-1]}"
    email_message = {
        "to": replace(MESSAGE, to=Email(broken)),
        "subject": replace(MESSAGE, subject=broken),
        "message_id": replace(MESSAGE, message_id=broken),
    }[field]
    with pytest.raises(MailRefused) as caught:
        await case.send(email_message)
    assert case.arrived() == []
    assert "eve" not in str(caught.value)
