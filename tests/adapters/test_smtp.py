"""Delivering emails: the server URL, the MIME message, encryption, authentication, failures, and the files in the folder."""

import base64
import ssl
import stat
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from email import message_from_bytes, policy
from functools import partial
from pathlib import Path

import pytest
import trio

from adapters.email.mime import parse_sender, to_mime
from adapters.email.smtp import SmtpServer
from adapters.email.transports import FolderTransport, SmtpTransport
from core.kernel.values import Email
from ports.outside import EmailMessage, MailRefused
from tests.fakes.certificates import client_context, make_certificate, server_context
from tests.fakes.manners import converse, server_that
from tests.fakes.smtp_sink import SmtpSink
from tests.support.waiting import eventually
from tests.tables import table

SENDER = "Gatehouse <gatehouse@example.com>"
PASSWORD = "s3cr3t-pa55word"
MESSAGE = EmailMessage(
    message_id="<6f1c1f2e-64a5-4a2a-9a42-5a8f3f9b7c11@id.example.com>",
    date=datetime(2026, 3, 4, 5, 6, 7, 890, tzinfo=UTC),
    to=Email("ada@example.com"),
    subject="Confirm your email address - Gatehouse",
    text="Open this:\n\nhttps://id.example.com/auth/verify-email?token=0d9f9d4e-7f07-4c39-a9a4-0b1f6b8c1a52\n",
    html="<p>Open <a href='https://id.example.com/'>this</a>.</p>\n",
)


async def refused(transport: SmtpTransport | FolderTransport, email_message: EmailMessage = MESSAGE) -> str:
    """Return the reason for a refusal. The error has no cause, which could contain the sent data."""
    with trio.fail_after(10), pytest.raises(MailRefused) as caught:
        await transport.send(email_message)
    assert caught.value.__cause__ is None
    assert caught.value.__suppress_context__
    reason = str(caught.value)
    assert PASSWORD not in reason
    assert email_message.to not in reason
    assert len(reason) < 250
    assert reason.isprintable()
    return reason


# Settings


@table(
    ("url", "server"),
    [
        ("smtp://mail.example.com", SmtpServer("mail.example.com", 25, False, False, None, None)),
        ("smtp://mail.example.com/?starttls=1", SmtpServer("mail.example.com", 587, False, True, None, None)),
        ("smtp://mail.example.com:2525?starttls=0", SmtpServer("mail.example.com", 2525, False, False, None, None)),
        ("smtps://mail.example.com", SmtpServer("mail.example.com", 465, True, False, None, None)),
        ("SMTPS://[::1]:4650", SmtpServer("::1", 4650, True, False, None, None)),
        (
            "smtp://ada%40example.com:p%40ss%2Fw%3Ard@127.0.0.1:25",
            SmtpServer("127.0.0.1", 25, False, False, "ada@example.com", "p@ss/w:rd"),
        ),
    ],
)
def test_a_url_is_parsed(url: str, server: SmtpServer) -> None:
    assert SmtpServer.parse(url) == server


@table(
    ("url", "reason"),
    [
        ("mail.example.com:25", "must begin with smtp:// or smtps://"),
        ("http://mail.example.com", "must begin with smtp:// or smtps://"),
        ("smtp://", "must name a host"),
        ("smtp://:25", "must name a host"),
        ("smtp://mail..example.com", "must name a host"),
        ("smtp://mail example.com", "must name a host"),
        ("smtp://mail.example.com:port", "port that cannot be read"),
        ("smtp://mail.example.com:99999", "port that cannot be read"),
        ("smtp://mail.example.com:0", "port 0"),
        (f"smtp://ada:{PASSWORD}/x@mail.example.com", "percent-encoded"),
        (f"smtp://ada:{PASSWORD}#x@mail.example.com", "percent-encoded"),
        (f"smtp://ada:{PASSWORD}[x@mail.example.com", "percent-encoded"),
        ("smtp://mail.example.com/path", "must end after the port"),
        ("smtp://mail.example.com?tls=1", "one option, starttls"),
        ("smtp://mail.example.com?starttls=yes", "one option, starttls"),
        ("smtps://mail.example.com?starttls=1", "cannot have both"),
        ("smtp://ada@mail.example.com", "both a user name and a password"),
        (f"smtp://:{PASSWORD}@mail.example.com", "both a user name and a password"),
        (f"smtp://ada:{PASSWORD}%0D%0A@mail.example.com", "printable ASCII"),
        (f"smtp://ada:{PASSWORD}%C3%BC@mail.example.com", "printable ASCII"),
    ],
)
def test_a_url_that_cannot_be_used_is_explained_without_its_password(url: str, reason: str) -> None:
    with pytest.raises(ValueError, match=r"^(?:must|has|knows|cannot) ") as caught:
        SmtpServer.parse(url)
    assert reason in str(caught.value)
    assert PASSWORD not in str(caught.value)
    assert caught.value.__cause__ is None


def test_the_representation_omits_the_password() -> None:
    server = SmtpServer.parse(f"smtp://ada:{PASSWORD}@mail.example.com")
    assert PASSWORD not in f"{server} {server!r}"


@table(
    ("text", "name", "address"),
    [
        ("gatehouse@example.com", "", "gatehouse@example.com"),
        ("Gatehouse <gatehouse@localhost.localdomain>", "Gatehouse", "gatehouse@localhost.localdomain"),
        ('"Acme, Inc." <id@example.com>', "Acme, Inc.", "id@example.com"),
        ("T\u00fcrhaus <id@example.com>", "T\u00fcrhaus", "id@example.com"),
    ],
)
def test_a_sender_is_parsed(text: str, name: str, address: str) -> None:
    sender = parse_sender(text)
    assert (sender.display_name, sender.addr_spec) == (name, address)


@table(
    "text",
    [
        "",
        "Gatehouse",
        "gatehouse@",
        "@example.com",
        "a@example.com, b@example.com",
        "a@example.com\r\nBcc: b@example.com",
        "<a@b",
        "\u00fc@example.com",
    ],
)
def test_a_sender_that_cannot_be_used_is_explained(text: str) -> None:
    with pytest.raises(ValueError, match=r"^must "):
        parse_sender(text)


# The message


def test_a_message_has_every_header_and_both_parts() -> None:
    message = to_mime(MESSAGE, parse_sender(SENDER))
    assert dict(message.items()) | {"Content-Type": ""} == {
        "From": "Gatehouse <gatehouse@example.com>",
        "To": "ada@example.com",
        "Subject": "Confirm your email address - Gatehouse",
        "Date": "Wed, 04 Mar 2026 05:06:07 +0000",
        "Message-ID": "<6f1c1f2e-64a5-4a2a-9a42-5a8f3f9b7c11@id.example.com>",
        "Auto-Submitted": "auto-generated",
        "MIME-Version": "1.0",
        "Content-Type": "",
    }
    assert message.get_content_type() == "multipart/alternative"
    # The last part is preferred (RFC 2046 section 5.1.4).
    assert [part.get_content_type() for part in message.iter_parts()] == ["text/plain", "text/html"]


def test_a_link_is_unchanged_in_the_raw_message() -> None:
    raw = to_mime(MESSAGE, parse_sender(SENDER)).as_bytes()
    assert b"\r\nhttps://id.example.com/auth/verify-email?token=0d9f9d4e-7f07-4c39-a9a4-0b1f6b8c1a52\r\n" in raw


@table("text", ["Gr\u00fc\u00dfe \u2603\n", "x" * 5000 + "\n", "..\n.\n"])
def test_the_raw_message_is_ascii_with_short_lines_for_every_text(text: str) -> None:
    email_message = replace(MESSAGE, text=text, html=text, subject="\u2603" * 200, message_id=f"<{'i' * 90}@{'d' * 200}.example.com>")
    message = to_mime(email_message, parse_sender("T\u00fcrhaus <id@example.com>"))
    raw = message.as_bytes()
    assert raw.isascii()
    assert max(map(len, raw.split(b"\r\n"))) <= 998
    assert email_message.message_id.encode() in raw
    body = message.get_body(("plain",))
    assert body is not None
    assert body.get_content().replace("\r\n", "\n") == text


@table("email_message", [replace(MESSAGE, text="a\0b"), replace(MESSAGE, html="a\0b")])
def test_a_nul_in_a_body_is_refused(email_message: EmailMessage) -> None:
    with pytest.raises(MailRefused, match="NUL"):
        to_mime(email_message, parse_sender(SENDER))


@table(
    "word",
    ["=?utf-8?q?x=0D=0ABcc:_evil@evil.example=0D=0A=0D=0Ahello?=", "=?utf-8?b?YQ0KQmNjOiBl?=", "=?utf-8?b?YQBi?=", "=?utf-8?q?=E2=80=AE?="],
)
@table("around", ["{}", "You are invited to {} - Gatehouse", "Zo\u00eb, {}"])
def test_an_encoded_word_in_a_subject_is_not_decoded(word: str, around: str) -> None:
    subject = around.format(word)
    raw = to_mime(replace(MESSAGE, subject=subject), parse_sender(SENDER)).as_bytes()
    head = message_from_bytes(raw, policy=policy.default)
    assert (head["Bcc"], head.get_body(("plain",)) is not None) == (None, True)
    assert head["Subject"] == subject.replace("=?", "= ?")
    assert b"\0" not in raw


# By SMTP


async def test_the_envelope_names_sender_and_recipient() -> None:
    with SmtpSink() as sink:
        await SmtpTransport(sink.url, SENDER).send(MESSAGE)
    [envelope] = sink.envelopes
    assert (envelope.mail_from, envelope.rcpt_tos) == ("gatehouse@example.com", ["ada@example.com"])


async def test_the_client_authenticates_at_a_server_that_requires_it() -> None:
    with SmtpSink(login=("ada", PASSWORD)) as sink:
        await SmtpTransport(f"smtp://ada:{PASSWORD}@127.0.0.1:{sink.port}", SENDER).send(MESSAGE)
        assert len(sink.messages) == 1
        reason = await refused(SmtpTransport(f"smtp://ada:{PASSWORD}x@127.0.0.1:{sink.port}", SENDER))
        assert reason == f"127.0.0.1 port {sink.port}: refused the user name or password: 535"
        assert "530" in await refused(SmtpTransport(sink.url, SENDER))
    assert len(sink.messages) == 1


async def test_the_client_does_not_authenticate_if_the_server_does_not_offer_it() -> None:
    with SmtpSink() as sink:
        reason = await refused(SmtpTransport(f"smtp://ada:{PASSWORD}@127.0.0.1:{sink.port}", SENDER))
    assert "AUTH" in reason


async def test_the_error_for_a_refused_recipient_quotes_the_reply() -> None:
    with SmtpSink() as sink:
        sink.recipient_answer = f"550 5.1.1 <{MESSAGE.to}>: no such user here"
        reason = await refused(SmtpTransport(sink.url, SENDER))
    assert reason == f"127.0.0.1 port {sink.port}: refused the recipient: 550 5.1.1 <(the recipient)>: no such user here"


async def test_the_error_for_a_refused_message_quotes_the_reply() -> None:
    with SmtpSink() as sink:
        sink.data_answer = "451 4.7.1 " + "greylisted " * 40
        reason = await refused(SmtpTransport(sink.url, SENDER))
        assert "refused: 451 4.7.1 greylisted" in reason
        sink.data_answer = "250 OK"
        await SmtpTransport(sink.url, SENDER).send(MESSAGE)
    assert len(sink.messages) == 1


async def test_an_email_is_refused_if_there_is_no_server() -> None:
    with SmtpSink() as sink:
        url = sink.url
    assert (await refused(SmtpTransport(url, SENDER))).endswith("Connection refused")


# Encryption


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_certificate(tmp_path_factory.mktemp("tls") / "sink.pem", "127.0.0.1")


@pytest.fixture
def server_tls(certificate: Path) -> ssl.SSLContext:
    return server_context(certificate)


@pytest.fixture
def client_tls(certificate: Path) -> ssl.SSLContext:
    return client_context(certificate)


async def test_smtps_is_encrypted_from_the_start(server_tls: ssl.SSLContext, client_tls: ssl.SSLContext) -> None:
    with SmtpSink(tls=server_tls) as sink:
        await SmtpTransport(sink.url, SENDER, tls=client_tls).send(MESSAGE)
        assert "certificate is not accepted" in await refused(SmtpTransport(sink.url, SENDER))
        assert "certificate is not accepted" in await refused(SmtpTransport(f"smtps://localhost:{sink.port}", SENDER, tls=client_tls))
    assert len(sink.messages) == 1


async def test_starttls_encrypts_before_anything_else(server_tls: ssl.SSLContext, client_tls: ssl.SSLContext) -> None:
    with SmtpSink(starttls=server_tls, login=("ada", PASSWORD)) as sink:
        url = f"smtp://ada:{PASSWORD}@127.0.0.1:{sink.port}?starttls=1"
        await SmtpTransport(url, SENDER, tls=client_tls).send(MESSAGE)
        assert "certificate is not accepted" in await refused(SmtpTransport(url, SENDER))
    assert len(sink.messages) == 1


async def test_nothing_is_sent_if_starttls_is_not_offered() -> None:
    with SmtpSink() as sink:
        reason = await refused(SmtpTransport(f"{sink.url}?starttls=1", SENDER))
    assert "STARTTLS" in reason
    assert sink.messages == []


# Misbehaving servers


async def test_a_silent_server_delays_an_email_only_until_the_deadline() -> None:
    async def silent(stream: trio.SocketStream) -> None:
        await trio.sleep_forever()

    async with server_that(silent) as url:
        transport = SmtpTransport(url, SENDER, session_deadline=0.1, connections=1)
        for _ in range(2):  # the second email needs the thread that sends the first email
            assert "not finished within 0.1 s" in await refused(transport)


async def test_a_slow_server_delays_an_email_only_until_the_deadline() -> None:
    async def dribbling(stream: trio.SocketStream) -> None:
        while True:
            await stream.send_all(b"220-wait\r\n")
            await trio.sleep(0.01)

    async with server_that(dribbling) as url:
        assert "not finished within 0.1 s" in await refused(SmtpTransport(url, SENDER, session_deadline=0.1))


async def test_a_canceled_delivery_leaves_no_waiting_thread() -> None:
    async def silent(stream: trio.SocketStream) -> None:
        await trio.sleep_forever()

    async with server_that(silent) as url:
        transport = SmtpTransport(url, SENDER, connections=1)
        for _ in range(2):
            with trio.move_on_after(0.05) as scope:
                await transport.send(MESSAGE)
            assert scope.cancelled_caught
        await eventually(lambda: transport._threads.borrowed_tokens == 0)


@table("greeting", [b"554 no mail here\r\n", b"nonsense\r\n", b"\xff\xfe\r\n", b"220 " + b"x" * 100_000, b""])
async def test_an_email_is_refused_after_a_malformed_greeting(greeting: bytes) -> None:
    async def strange(stream: trio.SocketStream) -> None:
        with suppress(trio.BrokenResourceError):
            await stream.send_all(greeting)

    async with server_that(strange) as url:
        await refused(SmtpTransport(url, SENDER, session_deadline=5))


async def test_an_email_is_refused_if_the_server_disconnects() -> None:
    for command in (b"EHLO", b"MAIL", b"RCPT", b"DATA", b"."):
        async with server_that(partial(converse, answers={command: b""})) as url:
            assert "Connection unexpectedly closed" in await refused(SmtpTransport(url, SENDER))


async def test_an_accepted_email_counts_as_sent_even_if_quit_fails() -> None:
    for answer in (b"", b"500 no"):
        async with server_that(partial(converse, answers={b"QUIT": answer})) as url:
            await SmtpTransport(url, SENDER).send(MESSAGE)


async def test_the_error_omits_a_password_that_the_server_echoes() -> None:
    answers = {b"EHLO": b"250-hello\r\n250 AUTH PLAIN", b"AUTH": b"502 unknown command: (echo)"}
    async with server_that(partial(converse, answers=answers)) as url:
        reason = await refused(SmtpTransport(url.replace("//", f"//ada:{PASSWORD}@"), SENDER))
    assert base64.b64encode(f"\0ada\0{PASSWORD}".encode()).decode() not in reason
    assert reason.endswith("refused the user name or password: 502")


# Into a folder


def files(directory: Path) -> dict[str, int]:
    """Return the sorted file names in a directory with their modes."""
    return {path.name: stat.S_IMODE(path.stat().st_mode) for path in sorted(directory.iterdir())}


async def test_file_names_have_time_and_id_and_only_the_owner_can_read_the_files(tmp_path: Path) -> None:
    transport = FolderTransport(tmp_path / "var" / "mail", SENDER)
    for email_message in (MESSAGE, replace(MESSAGE, message_id="<../../etc/x@example.com>", date=MESSAGE.date + timedelta(seconds=1))):
        await transport.send(email_message)
        await transport.send(email_message)
    assert files(tmp_path / "var" / "mail") == {
        "20260304T050607.000890Z-6f1c1f2e-64a5-4a2a-9a42-5a8f3f9b7c11.eml": 0o600,
        "20260304T050608.000890Z-.._.._etc_x.eml": 0o600,
    }
    assert files(tmp_path / "var") == {"mail": 0o700}


async def test_an_unfinished_file_is_written_again(tmp_path: Path) -> None:
    transport = FolderTransport(tmp_path, SENDER)
    name = "20260304T050607.000890Z-6f1c1f2e-64a5-4a2a-9a42-5a8f3f9b7c11.eml"
    (tmp_path / f".{name}.new").write_bytes(b"half a let" * 1000)
    await transport.send(MESSAGE)
    assert list(files(tmp_path)) == [name]
    assert b"half a let" not in (tmp_path / name).read_bytes()


async def test_an_email_is_refused_if_the_folder_is_not_writable(tmp_path: Path) -> None:
    transport = FolderTransport(tmp_path / "mail", SENDER)
    (tmp_path / "mail").rmdir()
    assert (await refused(transport)).endswith("No such file or directory")
