"""The server's certificate and its files."""

from collections.abc import Callable
from datetime import datetime, timedelta
from pathlib import Path

import pytest
import structlog.testing
import trio
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_pem_private_key,
)

from adapters.clock import SystemClock
from adapters.geoip import FileUnreadable
from adapters.tls import TlsCertificate
from entrypoints.wiring import watch_certificate
from tests.fakes.certificates import make_certificate
from tests.support.waiting import eventually


@pytest.fixture
def files(tmp_path: Path) -> tuple[Path, Path]:
    """The files for a certificate and its key."""
    both = make_certificate(tmp_path / "both.pem", "id.example.com", "127.0.0.1")
    key, _, certificate = both.read_text().partition("-----BEGIN CERTIFICATE-----")
    (tmp_path / "key.pem").write_text(key)
    (tmp_path / "certificate.pem").write_text(f"-----BEGIN CERTIFICATE-----{certificate}")
    return tmp_path / "certificate.pem", tmp_path / "key.pem"


def encrypt(key: Path) -> None:
    private = load_pem_private_key(key.read_bytes(), None)
    key.write_bytes(private.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, BestAvailableEncryption(b"secret")))


def replace(key: Path, other: rsa.RSAPrivateKey | ec.EllipticCurvePrivateKey) -> None:
    key.write_bytes(other.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))


MISMATCH = "key.pem does not belong to the first certificate in "
DAMAGES: dict[str, tuple[Callable[[Path, Path], object], str]] = {
    "missing": (lambda certificate, key: certificate.unlink(), "certificate.pem cannot be read: No such file or directory"),
    "missing key": (lambda certificate, key: key.unlink(), "key.pem cannot be read: No such file or directory"),
    "in another format": (lambda certificate, key: certificate.write_bytes(b"0\x82\x01\xff"), "certificate.pem is not in PEM"),
    "empty": (lambda certificate, key: certificate.write_bytes(b""), "certificate.pem has no certificate in PEM"),
    "no key": (lambda certificate, key: key.write_text("no key"), "key.pem has no private key in PEM without a passphrase"),
    "encrypted key": (lambda certificate, key: encrypt(key), "key.pem has no private key in PEM without a passphrase"),
    "another key": (
        lambda certificate, key: replace(key, ec.generate_private_key(ec.SECP256R1())),
        "key.pem does not belong to the first certificate",
    ),
    "another curve": (
        lambda certificate, key: replace(key, ec.generate_private_key(ec.SECP384R1())),
        "key.pem does not belong to the first certificate",
    ),
    "another kind of key": (
        lambda certificate, key: replace(key, rsa.generate_private_key(65537, 2048)),
        "key.pem does not belong to the first certificate",
    ),
}


@pytest.mark.parametrize(("damage", "problem"), DAMAGES.values(), ids=DAMAGES)
def test_files_that_are_not_usable_are_described_and_the_last_ones_stay(
    files: tuple[Path, Path], damage: Callable[[Path, Path], object], problem: str
) -> None:
    certificate = TlsCertificate(*files)
    assert certificate.names == ["id.example.com", "127.0.0.1"]
    context = certificate.context
    assert all("GCM" in cipher["name"] or "CHACHA20" in cipher["name"] for cipher in context.get_ciphers())
    assert not certificate.reload_if_changed()
    damage(*files)
    with pytest.raises(FileUnreadable, match=problem):
        TlsCertificate(*files)
    with pytest.raises(FileUnreadable, match=problem):
        certificate.reload_if_changed()
    assert not certificate.reload_if_changed()  # the problem is reported once
    assert certificate.context is context


async def test_renewed_files_are_used_as_soon_as_both_are_there(files: tuple[Path, Path], tmp_path: Path, autojump_clock: object) -> None:
    """Programs replace the files in turn, for example the links to the newest files."""
    certificate = TlsCertificate(*files)
    renewed = make_certificate(tmp_path / "renewed.pem", "other.example.com", days=90)
    ends: list[datetime] = []
    with structlog.testing.capture_logs() as logs:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(watch_certificate, certificate, SystemClock(), ends.append)
            for file in files:
                (tmp_path / "link").symlink_to(renewed)
                (tmp_path / "link").replace(file)
                await eventually(lambda: logs)
            await eventually(lambda: ends[-1] > ends[0])
            nursery.cancel_scope.cancel()
    assert certificate.names == ["other.example.com"]
    assert [round((end - SystemClock().now()) / timedelta(days=1)) for end in (ends[0], ends[-1])] == [0, 90]
    assert [line["event"] for line in logs] == ["file_not_reloaded", "tls_certificate_reloaded"]
