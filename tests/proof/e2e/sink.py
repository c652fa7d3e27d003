"""A mail server that keeps emails: real SMTP on a free port."""

import asyncio
import email
import re
import threading
from dataclasses import dataclass
from email import policy
from email.message import EmailMessage

from aiosmtpd.controller import Controller
from aiosmtpd.smtp import SMTP, Envelope, Session

from tests.proof.e2e.process import Port
from tests.support.waiting import PATIENCE


@dataclass(frozen=True)
class ReceivedEmail:
    sender: str | None
    recipients: tuple[str, ...]
    message: EmailMessage

    @property
    def message_id(self) -> str:
        return str(self.message["Message-ID"])

    @property
    def text(self) -> str:
        return self._part("plain")

    @property
    def html(self) -> str:
        return self._part("html")

    @property
    def link(self) -> str:
        """The URL in the text."""
        match = re.search(r"https?://\S+[?&]token=\S+", self.text)
        assert match, self.text
        return match[0]

    @property
    def token(self) -> str:
        return self.link.partition("token=")[2]

    def _part(self, kind: str) -> str:
        part = self.message.get_body((kind,))
        assert part is not None, f"the email has no {kind} part"
        content = part.get_content()
        assert isinstance(content, str)
        return content


class MailSink:
    """A mail server that accepts every email after `delay` seconds.

    It can be stopped and started again on the same port.
    """

    def __init__(self) -> None:
        self._port = Port()
        self.url = f"smtp://127.0.0.1:{self._port.number}"
        self.delay = 0.0
        self.busy = False  # closed until the first email
        self._emails: list[ReceivedEmail] = []
        self._changed = threading.Condition()
        self._controller: Controller | None = None

    def start(self) -> None:
        # The greeting is built at the start, and would look up the machine's name.
        self._controller = Controller(self, hostname="127.0.0.1", port=self._port.number, server_hostname="sink.test")
        self._controller.start()

    def stop(self) -> None:
        if self._controller is not None:
            self._controller.stop()
            self._controller = None

    def close(self) -> None:
        self.stop()
        self._port.close()

    async def handle_DATA(self, server: SMTP, session: Session, envelope: Envelope) -> str:  # noqa: N802 (aiosmtpd looks for this name)
        self.busy = True
        await asyncio.sleep(self.delay)
        assert isinstance(envelope.content, bytes)
        message = email.message_from_bytes(envelope.content, _class=EmailMessage, policy=policy.default)
        with self._changed:
            self._emails.append(ReceivedEmail(envelope.mail_from, tuple(envelope.rcpt_tos), message))
            self._changed.notify_all()
        self.busy = False
        return "250 accepted"

    @property
    def emails(self) -> list[ReceivedEmail]:
        """Return all emails in their order."""
        with self._changed:
            return list(self._emails)

    def forget(self) -> None:
        """Forget all emails."""
        with self._changed:
            self._emails.clear()

    def emails_to(self, address: str, subject: str = "") -> list[ReceivedEmail]:
        """Return the emails to this address with subjects that start so."""
        return [email for email in self.emails if email.recipients == (address,) and email.message["Subject"].startswith(subject)]

    def wait_for(self, address: str, count: int = 1, subject: str = "") -> ReceivedEmail:
        """Return email number `count` to this address with such a subject, as soon as it has arrived."""
        with self._changed:
            arrived = self._changed.wait_for(lambda: len(self.emails_to(address, subject)) >= count, PATIENCE)
        assert arrived, f"there is no email number {count} to {address}, but {len(self.emails)} emails in total"
        return self.emails_to(address, subject)[count - 1]
