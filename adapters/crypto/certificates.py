"""X.509 certificates: self-signed certificates for our own keys, and service certificates."""

from collections.abc import Callable, Mapping
from datetime import datetime, timedelta
from functools import partial
from typing import Any, Final

from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

from adapters.crypto.client_assertions import public_jwk, sign_assertion
from adapters.threads import TrioThreads
from core.federation.connections.model import connections
from core.federation.saml.model import configuration
from core.kernel.values import new_id

_KEY_SIZE = 2048
MIN_RSA_BITS: Final = 2048
MAX_RSA_BITS: Final = 8192  # larger keys make signatures slow to verify


def generate_rsa_key() -> rsa.RSAPrivateKey:
    """Return a new key with 2048 bits. Generating a key takes a processor for about 0.1 s."""
    return rsa.generate_private_key(65537, _KEY_SIZE)


class X509Certificates:
    """Implements `ports.crypto.Certificates`."""

    def __init__(self, generate_key: Callable[[], rsa.RSAPrivateKey] = generate_rsa_key) -> None:
        self._generate_key = generate_key
        self._threads = TrioThreads()

    async def create(self, organization: str, name: str, now: datetime, years: int) -> configuration.SamlCertificate:
        return await self._threads.run(partial(_create, self._generate_key, organization, name, now, years))

    async def read(self, pem: str) -> str:
        return await self._threads.run(partial(_read, pem))

    async def public_jwk(self, pem: str) -> Mapping[str, str]:
        return await self._threads.run(partial(public_jwk, pem))

    def sign_token(self, certificate: configuration.SamlCertificate, claims: Mapping[str, Any]) -> str:
        return sign_assertion(certificate, claims)

    async def facts(self, pem: str) -> connections.CertificateFacts:
        return await self._threads.run(partial(_facts, pem))

    async def valid_until(self, pem: str) -> datetime:
        return await self._threads.run(partial(valid_until, pem))


def valid_until(pem: str) -> datetime:
    """Return when the first certificate in PEM ends. Raises: ValueError."""
    from cryptography import x509

    return x509.load_pem_x509_certificate(pem.encode()).not_valid_after_utc


def names_of(pem: str) -> list[str]:
    """Return the host names and addresses in the first PEM certificate. Raises: ValueError."""
    from cryptography import x509

    try:
        names = x509.load_pem_x509_certificate(pem.encode()).extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except x509.ExtensionNotFound:
        return []
    return [*names.get_values_for_type(x509.DNSName), *map(str, names.get_values_for_type(x509.IPAddress))]


def _facts(pem: str) -> connections.CertificateFacts:
    from cryptography import x509

    text = pem.strip()
    if "-----" not in text:
        text = f"-----BEGIN CERTIFICATE-----\n{text}\n-----END CERTIFICATE-----"
    try:
        canonical = _read(text)
    except configuration.SloCertificateInvalid:
        raise connections.ProviderCertificateInvalid from None
    certificate = x509.load_pem_x509_certificate(canonical.encode())
    return connections.CertificateFacts(
        certificate=canonical,
        fingerprint=certificate.fingerprint(hashes.SHA256()).hex(),
        valid_from=certificate.not_valid_before_utc,
        valid_until=certificate.not_valid_after_utc,
    )


def _read(pem: str) -> str:
    from cryptography import x509

    # The library's parser ignores all other blocks, such as a private key that was pasted as well.
    if pem.count("-----BEGIN ") != 1 or len(pem) > configuration.MAX_CERTIFICATE_LENGTH:
        raise configuration.SloCertificateInvalid
    try:
        certificate = x509.load_pem_x509_certificate(pem.encode())
        key = certificate.public_key()
    except (ValueError, UnsupportedAlgorithm):
        raise configuration.SloCertificateInvalid from None
    if not isinstance(key, rsa.RSAPublicKey) or not MIN_RSA_BITS <= key.key_size <= MAX_RSA_BITS:
        raise configuration.SloCertificateInvalid
    return certificate.public_bytes(Encoding.PEM).decode()


def _create(
    generate_key: Callable[[], rsa.RSAPrivateKey], organization: str, name: str, now: datetime, years: int
) -> configuration.SamlCertificate:
    from cryptography import x509  # needs megabytes, and is rarely used
    from cryptography.x509.oid import NameOID

    # Times in certificates have no fractions.
    valid_from = now.replace(microsecond=0)
    try:
        valid_until = valid_from.replace(year=valid_from.year + years)
    except ValueError:  # 29 February
        valid_until = valid_from.replace(year=valid_from.year + years, day=28) + timedelta(days=1)
    private_key = generate_key()
    subject = x509.Name([x509.NameAttribute(NameOID.ORGANIZATION_NAME, organization), x509.NameAttribute(NameOID.COMMON_NAME, name)])
    certificate = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject)
        .public_key(private_key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(valid_from)
        .not_valid_after(valid_until)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .sign(private_key, hashes.SHA256())
    )
    pem = private_key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    return configuration.SamlCertificate(
        id=new_id(),
        certificate=certificate.public_bytes(Encoding.PEM).decode(),
        private_key=lambda: pem,
        valid_from=valid_from,
        valid_until=valid_until,
        created_at=now,
    )
