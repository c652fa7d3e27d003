"""This server's certificate and private key, from two files that external programs renew."""

import ssl
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path
from typing import Final

from adapters.crypto import certificates
from adapters.geoip import FileUnreadable

_PROTOCOLS: Final = ("h2", "http/1.1")  # that clients can choose (ALPN)
_CIPHERS: Final = "ECDHE+AESGCM:ECDHE+CHACHA20"  # for TLS 1.2; Debian's OpenSSL would also take CBC with SHA-1
_MISMATCH: Final = ("KEY_VALUES_MISMATCH", "KEY_TYPE_MISMATCH", "NO_CERTIFICATE_ASSIGNED")
_WEAK: Final = ("EE_KEY_TOO_SMALL", "CA_KEY_TOO_SMALL", "EE_MD_TOO_WEAK", "CA_MD_TOO_WEAK")


class TlsCertificate:
    """A certificate with its chain, its key, and the TLS context that uses them.

    The context has Python's defaults, which a Python or OpenSSL release can make stricter, except for the TLS 1.2 ciphers.

    Raises: FileUnreadable.
    """

    context: ssl.SSLContext
    ends_at: datetime
    names: Sequence[str]  # host names, also with a wildcard, and addresses

    def __init__(self, certificate: Path, key: Path) -> None:
        self.path, self._key = certificate, key
        self.reload()

    def reload(self) -> None:
        """Read the files again. If the new files are not usable, continue with the old files. Raises: FileUnreadable."""
        self._seen = self._state()  # before the files are read, so that a change in between is noticed
        certificate, key = self.path, self._key
        pem = _read(certificate)
        try:
            ends_at, names = certificates.valid_until(pem), certificates.names_of(pem)
        except ValueError:
            raise FileUnreadable(f"{certificate} has no certificate in PEM") from None
        _read(key)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        context.options |= ssl.OP_NO_RENEGOTIATION
        context.set_ciphers(_CIPHERS)
        context.set_alpn_protocols(_PROTOCOLS)
        try:
            context.load_cert_chain(certificate, key, password="")
        except ssl.SSLError as error:
            if error.reason in _MISMATCH:
                raise FileUnreadable(
                    f"the key in {key} does not belong to the first certificate in {certificate}: that of this server comes first"
                ) from None
            if error.reason in _WEAK:
                raise FileUnreadable(f"the certificate in {certificate} has a key or a signature that is too weak") from None
            raise FileUnreadable(f"{key} has no private key in PEM without a passphrase") from None
        self.context, self.ends_at, self.names = context, ends_at, names

    def reload_if_changed(self) -> bool:
        """Read the files again if they have changed since the last attempt.

        Return whether the files had changed. Raises: FileUnreadable.
        """
        if self._state() == self._seen:
            return False
        self.reload()
        return True

    def _state(self) -> Sequence[tuple[int, ...] | None]:
        return [_state(self.path), _state(self._key)]


def _read(path: Path) -> str:
    try:
        return path.read_text("utf-8")
    except OSError as error:
        raise FileUnreadable(f"{path} cannot be read: {error.strerror}") from None
    except UnicodeDecodeError:
        raise FileUnreadable(f"{path} is not in PEM") from None


def _state(path: Path) -> tuple[int, ...] | None:
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns  # the last value is new after a change of rights
