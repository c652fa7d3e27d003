"""xmlsec judges signatures last: only signatures that our own code has verified, with the key that verified them (security X-18)."""

import re
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from itertools import product
from types import SimpleNamespace
from typing import Any, Final

import pytest
import structlog
import xmlsec
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from lxml import etree

from adapters.saml import second_judge, signed_parts, verification
from adapters.saml.documents import XmlDocuments
from adapters.saml.parsing import parse
from core.federation.connections.model.saml_responses import SamlFault, SamlResponseRefused
from core.federation.saml.model.configuration import SamlCertificate
from core.federation.saml.model.messages import LogoutSignatureInvalid, ReceivedDocument
from ports.saml import SamlProviders
from tests.fakes.outside import FakeClock, FakeMetrics
from tests.federation.connections.saml.refusals import Cases, refusals
from tests.federation.connections.saml.test_forged import DOCUMENTS, SIGNATURES
from tests.federation.connections.saml.test_refused_content import CONTENTS, ENCRYPTED
from tests.federation.connections.saml.wrapping import DS, WRAPPED, signed_response
from tests.support.builders import BASE_URL
from tests.support.saml import NS, format_instant
from tests.support.saml.identity_provider import (
    GCM,
    NOW,
    REQUEST,
    Content,
    Form,
    IdentityProvider,
    constants,
    identity,
    serialize,
)
from tests.support.saml.signatures import signed_document

# The xmlsec constants by their algorithms' URIs
TRANSFORMS: Final = {each.href: each for each in vars(constants).values() if isinstance(each, type(constants.TransformRsaSha256))}
MARK: Final = "of-a-stranger"


@dataclass
class Judge:
    """xmlsec, which writes down the documents that it is asked about."""

    documents: list[Any] = field(default_factory=list)
    fails: bool = False

    def verify(self, node: Any) -> None:
        self.documents.append(node.getroottree().getroot())
        if self.fails:
            raise xmlsec.VerificationError("Signature is invalid.")


@pytest.fixture
def judge(monkeypatch: pytest.MonkeyPatch) -> Judge:
    judge = Judge()

    class Context(xmlsec.SignatureContext):
        def verify(self, node: Any) -> None:
            judge.verify(node)
            super().verify(node)

    monkeypatch.setattr(xmlsec, "SignatureContext", Context)
    return judge


@dataclass(frozen=True, slots=True)
class AnyDigest:
    """A digest that is equal to any digest."""

    def digest(self) -> "AnyDigest":
        return self

    def __eq__(self, other: object) -> bool:
        return True

    __hash__ = None  # type: ignore[assignment]


def _logout_request(kind: str = "LogoutRequest") -> bytes:
    return (
        f'<samlp:{kind} xmlns:samlp="{NS["samlp"]}" xmlns:saml="{NS["saml"]}" ID="_r" Version="2.0" IssueInstant="{format_instant(NOW)}">'
        f"<saml:Issuer>i</saml:Issuer><saml:NameID>ada</saml:NameID></samlp:{kind}>"
    ).encode()


def _received(document: bytes) -> ReceivedDocument:
    return ReceivedDocument(org_slug="acme", service_slug="shop", document=document)


def _forged_logouts(provider: IdentityProvider) -> list[bytes]:
    """Return messages that are refused, made by changing a message with a right signature."""
    signed = signed_document(_logout_request(), provider.certificate)
    return [
        signed.replace(b"ada", b"eve"),
        signed.replace(b"<samlp:LogoutRequest ", f'<samlp:LogoutRequest xmlns:z="urn:{"a" * 10_000}" '.encode(), 1),
        signed.replace(b'URI="#_r"', b'URI=""'),
        signed.replace(b"<ds:SignatureValue>", b'<ds:SignatureValue xmlns:x="relative">'),
        signed.replace(b"<ds:SignatureValue>", b'<ds:SignatureValue xml:id="_r">'),
        signed.replace(b"<ds:Signature ", b'<ds:Signature xml:id="_r" '),
        re.sub(rb"(<ds:SignatureValue>\s*)....", rb"\1AAAA", signed),
        signed_document(_logout_request(), provider.attacker),
        signed_document(_logout_request(), provider.certificate, "http://www.w3.org/2000/09/xmldsig#rsa-sha1"),
    ]


@pytest.mark.slow
async def test_no_refused_document_reaches_xmlsec(
    verifier: SamlProviders, provider: IdentityProvider, judge: Judge, metrics: FakeMetrics
) -> None:
    findings = [name for name, case in WRAPPED.items() if await _fault(verifier, provider, case(provider)) is None]
    cases: Cases = {**SIGNATURES, **DOCUMENTS, **ENCRYPTED, **CONTENTS}
    findings += [name for name, _ in await refusals(verifier, provider, cases)]
    certificate = provider.certificate.certificate
    for forged in [*_forged_logouts(provider), signed_document(_logout_request("LogoutResponse"), provider.certificate)]:
        with pytest.raises(SamlResponseRefused):
            await verifier.read_logout_request(forged, None, [certificate])
    for forged in _forged_logouts(provider):
        with pytest.raises(LogoutSignatureInvalid):
            verification.verify(parse(forged), certificate)
    assert (findings, judge.documents, metrics.signature_disputes) == ([], [], 0)


async def _fault(verifier: SamlProviders, provider: IdentityProvider, document: bytes, **partner: Any) -> SamlFault | None:
    """Return a response's fault, or None if it is accepted."""
    try:
        await verifier.read(await verifier.parse(document), provider.partner(**partner), NOW, expected=REQUEST)
    except SamlResponseRefused as refusal:
        return refusal.fault
    return None


async def test_xmlsec_gets_each_signed_part_alone_without_a_key_of_the_sender(
    verifier: SamlProviders, provider: IdentityProvider, judge: Judge
) -> None:
    key_info = f'<ds:KeyInfo xml:id="_response"><ds:KeyName>{MARK}</ds:KeyName><ds:RetrievalMethod URI="file:///{MARK}"/></ds:KeyInfo>'
    text = serialize(signed_response(provider)).decode().replace("<samlp:Status>", f"<!--{MARK}--><samlp:Status>")
    document = re.sub("<ds:KeyInfo>.*</ds:KeyInfo>", key_info, text, flags=re.DOTALL).encode()
    others = tuple(other.certificate for other in provider.others)
    certificates = (others[0], provider.certificate.certificate, others[1])
    # The KeyInfo has the Response's ID, which our own code refuses. Without it, the response is accepted.
    assert await _fault(verifier, provider, document) is SamlFault.DUPLICATE_ID
    assert await _fault(verifier, provider, document.replace(b' xml:id="_response"', b""), certificates=certificates) is None
    [root] = judge.documents
    assert (root.tag, root.find(f".//{{{DS}}}KeyInfo"), MARK in etree.tostring(root).decode()) == (
        f"{{{NS['samlp']}}}Response",
        None,
        False,
    )
    judge.documents.clear()
    both = provider.respond(Content(), signed=["assertion", "response"], encryption=GCM)
    assert await _fault(verifier, provider, both, certificates=certificates) is None
    assert [etree.QName(root).localname for root in judge.documents] == ["Response", "Assertion"]


async def test_a_disagreement_is_refused_counted_and_logged(
    verifier: SamlProviders,
    provider: IdentityProvider,
    judge: Judge,
    metrics: FakeMetrics,
    clock: FakeClock,
    capfd: pytest.CaptureFixture[str],
) -> None:
    certificate = provider.certificate.certificate
    logout = signed_document(_logout_request(), provider.certificate)
    services = XmlDocuments(BASE_URL, clock, metrics)
    assert (await verifier.read_logout_request(logout, None, [certificate])).name_id.value == "ada"
    assert await services.is_signed(_received(logout), certificate)
    judge.fails = True
    with structlog.testing.capture_logs() as log:
        for signed in (["assertion"], ["response"]):
            assert await _fault(verifier, provider, provider.respond(Content(), signed=signed)) is SamlFault.SIGNATURE_DISPUTED
        with pytest.raises(SamlResponseRefused) as refused:
            await verifier.read_logout_request(logout, None, [certificate])
        with pytest.raises(LogoutSignatureInvalid):
            await services.is_signed(_received(logout), certificate)
    assert refused.value.fault is SamlFault.SIGNATURE_DISPUTED
    line = {"event": "saml_signature_disputed", "log_level": "warning", "reason": "Signature is invalid."}
    assert (metrics.signature_disputes, log) == (4, [line] * 4)
    assert capfd.readouterr() == ("", "")


async def test_a_default_namespace_that_only_xmlsec_canonicalizes_is_a_disagreement(
    verifier: SamlProviders, provider: IdentityProvider, metrics: FakeMetrics
) -> None:
    document = provider.respond(Content(), signed=["response"], form=Form(signed_info_prefixes="#default"))
    assert await _fault(verifier, provider, document) is None
    added = document.replace(b"<samlp:Response ", b'<samlp:Response xmlns="urn:x" ', 1)
    assert (await _fault(verifier, provider, added), metrics.signature_disputes) == (SamlFault.SIGNATURE_DISPUTED, 1)


@pytest.mark.parametrize(
    ("name", "flaw", "forge"),
    [
        ("is_signed_by", lambda *_: True, lambda provider: replace(provider, certificate=provider.attacker)),
        ("hashlib", SimpleNamespace(new=lambda *_: AnyDigest()), lambda provider: provider),
    ],
    ids=["signature", "digest"],
)
async def test_xmlsec_refuses_what_a_flaw_of_our_own_code_would_accept(
    verifier: SamlProviders,
    provider: IdentityProvider,
    monkeypatch: pytest.MonkeyPatch,
    name: str,
    flaw: object,
    forge: Callable[[IdentityProvider], IdentityProvider],
) -> None:
    document = forge(provider).respond(Content(), signed=["assertion"])
    forged = document if name == "is_signed_by" else document.replace(b"7f3a", b"victim")
    assert await _fault(verifier, provider, forged) is SamlFault.SIGNATURE_WRONG
    monkeypatch.setattr(signed_parts, name, flaw)
    assert await _fault(verifier, provider, forged) is SamlFault.SIGNATURE_DISPUTED
    monkeypatch.setattr(second_judge, "confirm", lambda *_: None)
    assert await _fault(verifier, provider, forged) is None, "xmlsec alone refuses it"


def _with_key(certificate: SamlCertificate, bits: int) -> SamlCertificate:
    """Return a new key with this size, with a certificate that has expired."""
    key = rsa.generate_private_key(65537, bits)
    name = x509.Name([])
    began = datetime(2020, 1, 1, tzinfo=UTC)
    builder = x509.CertificateBuilder(name, name, key.public_key(), 1, began, began + timedelta(days=1))
    pem = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    return replace(certificate, certificate=builder.sign(key, SHA256()).public_bytes(Encoding.PEM).decode(), private_key=lambda: pem)


@pytest.mark.slow
@pytest.mark.parametrize("bits", [2048, 2560, 4096])
async def test_xmlsec_knows_all_accepted_algorithms_prefixes_and_keys(
    verifier: SamlProviders, provider: IdentityProvider, bits: int
) -> None:
    provider = replace(provider, certificate=_with_key(provider.certificate, bits))
    stated = identity(Content(), provider.certificate.certificate)
    findings = []
    prefixes = (None, "xs", "#default ds saml")
    for method, digest, listed, signed in product(signed_parts.RSA_ALGORITHMS, signed_parts.DIGESTS, prefixes, ("assertion", "response")):
        form = Form(method=TRANSFORMS[method], digest=TRANSFORMS[digest], prefixes=listed, signed_info_prefixes=listed)
        answer = await verifier.parse(provider.respond(Content(), signed=[signed], form=form))
        if await verifier.read(answer, provider.partner(), NOW, expected=REQUEST) != stated:
            findings.append((method, digest, listed, signed))
    assert findings == []
