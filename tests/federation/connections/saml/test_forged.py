"""Forged, altered and foreign responses are refused, with the fault that admins see."""

import re
from collections.abc import Callable
from typing import Final

import pytest
import xmlsec
from lxml import etree

from adapters.saml import responses, signed_parts, verification
from adapters.saml.parsing import parse
from core.federation.connections.model.saml_responses import (
    MAX_ENCODED_RESPONSE,
    SamlFault,
    SamlResponseRefused,
    decode_response,
)
from core.federation.saml.model.configuration import SamlCertificate
from core.federation.saml.model.messages import LogoutSignatureInvalid
from ports.saml import SamlProviders
from tests.federation.connections.saml.refusals import Case, Cases, refusals
from tests.federation.connections.saml.wrapping import DS, WRAPPED, signed_response
from tests.support.saml import NS, encode_base64
from tests.support.saml.identity_provider import (
    NOW,
    REQUEST,
    Content,
    Form,
    IdentityProvider,
    build,
    constants,
    find,
    identity,
    serialize,
    sign,
)
from tests.support.saml.signatures import signed_document


async def test_wrapped_signatures_are_refused(verifier: SamlProviders, provider: IdentityProvider) -> None:
    faults = {"signature of another": SamlFault.SIGNATURE_WRONG}
    cases = {name: (faults.get(name, SamlFault.ASSERTION_COUNT), case) for name, case in WRAPPED.items()}
    assert await refusals(verifier, provider, cases) == []


# Signatures


def _signed(form: Form) -> Case:
    return lambda provider: provider.respond(Content(), signed=["response"], form=form)


def _hmac(provider: IdentityProvider) -> bytes:
    key = xmlsec.Key.from_binary_data(constants.KeyDataHmac, provider.certificate.certificate.encode())
    response = build(Content())
    signature = xmlsec.template.create(response, constants.TransformExclC14N, constants.TransformHmacSha256, ns="ds")
    response.insert(1, signature)
    reference = xmlsec.template.add_reference(signature, constants.TransformSha256, uri="#_response")
    for transform in Form().transforms:
        xmlsec.template.add_transform(reference, transform)
    context = xmlsec.SignatureContext()
    context.key = key
    context.register_id(response, "ID")
    context.sign(signature)
    return serialize(response)


def _edited(*edits: tuple[str, str]) -> Case:
    """Return a signed response with replaced texts, by regular expressions."""

    def case(provider: IdentityProvider) -> bytes:
        text = serialize(signed_response(provider)).decode()
        for pattern, replacement in edits:
            text, count = re.subn(pattern, replacement, text, count=1, flags=re.DOTALL)
            assert count == 1, pattern
        return text.encode()

    return case


def _doubled(path: str) -> Case:
    def case(provider: IdentityProvider) -> bytes:
        response = signed_response(provider)
        element = find(response, path)
        element.addnext(etree.fromstring(etree.tostring(element, with_tail=False)))
        return serialize(response)

    return case


def _inserted(path: str, xml: str) -> Case:
    """Return a signed response with an additional element at the end of this element."""

    def case(provider: IdentityProvider) -> bytes:
        response = signed_response(provider)
        find(response, path).append(etree.fromstring(xml.replace(" ", f' xmlns:ds="{DS}" ', 1)))
        return serialize(response)

    return case


def _algorithm(name: str, value: str) -> Case:
    def case(provider: IdentityProvider) -> bytes:
        response = signed_response(provider)
        find(response, f".//ds:{name}").set("Algorithm", value)
        return serialize(response)

    return case


def _signed_by(of_assertion: SamlCertificate | None, of_response: SamlCertificate) -> bytes:
    response = build(Content())
    if of_assertion is not None:
        sign(find(response, "saml:Assertion"), of_assertion)
    sign(response, of_response)
    return serialize(response)


def _with_default_namespace(provider: IdentityProvider) -> bytes:
    """lxml ignores `#default` in a PrefixList, so it has another canonical form."""
    response = etree.fromstring(serialize(build(Content())).replace(b"<samlp:Response", b'<samlp:Response xmlns="urn:default"', 1))
    sign(response, provider.certificate, Form(prefixes="#default"))
    return serialize(response)


def _digest_in_comment(provider: IdentityProvider) -> bytes:
    """The forged content's digest stands in a comment, alone or beside a digest (CVE-2025-29775)."""
    text = serialize(signed_response(provider)).decode().replace("7f3a", "victim")
    return re.sub("(<ds:DigestValue>)", r"\1<!--Zm9yZ2Vk-->", text).encode()


SIGNATURES: Final[Cases] = {
    "content changed": (SamlFault.SIGNATURE_WRONG, _edited(("7f3a", "victim"))),
    "text added": (SamlFault.SIGNATURE_WRONG, _edited(("</samlp:Status>", "</samlp:Status>x"))),
    "attribute changed": (SamlFault.SIGNATURE_WRONG, _edited(("SPNameQualifier", "SPnameQualifier"))),
    "namespace redeclared": (SamlFault.SIGNATURE_WRONG, _edited(("<saml:NameID ", '<saml:NameID xmlns:saml="urn:other" '))),
    "relative namespace": (SamlFault.SIGNATURE_WRONG, _edited(("<samlp:Status>", '<samlp:Status xmlns="x">'))),
    "digest in a comment": (SamlFault.SIGNATURE_WRONG, _digest_in_comment),
    "key of an attacker": (SamlFault.SIGNATURE_WRONG, lambda idp: _signed_by(None, idp.attacker)),
    "signature value of another": (SamlFault.SIGNATURE_WRONG, _edited(("(<ds:SignatureValue>\\s*)....", r"\1AAAA"))),
    "HMAC with the certificate": (SamlFault.SIGNATURE_ALGORITHM, _hmac),
    "SHA-1": (SamlFault.SIGNATURE_ALGORITHM, _signed(Form(method=constants.TransformRsaSha1))),
    "SHA-224": (SamlFault.SIGNATURE_ALGORITHM, _signed(Form(method=constants.TransformRsaSha224))),
    "digest SHA-1": (SamlFault.SIGNATURE_ALGORITHM, _signed(Form(digest=constants.TransformSha1))),
    "RSA-PSS": (SamlFault.SIGNATURE_ALGORITHM, _algorithm("SignatureMethod", "http://www.w3.org/2007/05/xmldsig-more#sha256-rsa-MGF1")),
    "ECDSA": (SamlFault.SIGNATURE_ALGORITHM, _algorithm("SignatureMethod", "http://www.w3.org/2001/04/xmldsig-more#ecdsa-sha256")),
    "other algorithm": (
        SamlFault.SIGNATURE_WRONG,
        _algorithm("SignatureMethod", "http://www.w3.org/2001/04/xmldsig-more#rsa-sha512"),
    ),
    "other digest": (SamlFault.SIGNATURE_WRONG, _algorithm("DigestMethod", "http://www.w3.org/2001/04/xmlenc#sha512")),
    "canonicalization with comments": (
        SamlFault.SIGNATURE_SHAPE,
        _signed(Form(canonicalization=constants.TransformExclC14NWithComments)),
    ),
    "inclusive canonicalization": (SamlFault.SIGNATURE_SHAPE, _signed(Form(canonicalization=constants.TransformInclC14N))),
    "transform with comments": (
        SamlFault.SIGNATURE_SHAPE,
        _signed(Form(transforms=[constants.TransformEnveloped, constants.TransformExclC14NWithComments])),
    ),
    "inclusive transform": (
        SamlFault.SIGNATURE_SHAPE,
        _signed(Form(transforms=[constants.TransformEnveloped, constants.TransformInclC14N])),
    ),
    "no canonicalization": (SamlFault.SIGNATURE_SHAPE, _signed(Form(transforms=[constants.TransformEnveloped]))),
    "no enveloped signature": (SamlFault.SIGNATURE_SHAPE, _algorithm("Transform", "http://www.w3.org/2001/10/xml-exc-c14n#")),
    "XSLT": (SamlFault.SIGNATURE_SHAPE, _algorithm("Transform", "http://www.w3.org/TR/1999/REC-xslt-19991116")),
    "XPath": (
        SamlFault.SIGNATURE_SHAPE,
        _inserted(
            ".//ds:Transforms",
            f'<ds:Transform Algorithm="http://www.w3.org/TR/1999/REC-xpath-19991116"><XPath xmlns="{DS}">0</XPath></ds:Transform>',
        ),
    ),
    "base64": (SamlFault.SIGNATURE_SHAPE, _inserted(".//ds:Transforms", f'<ds:Transform Algorithm="{DS}base64"/>')),
    "two references": (SamlFault.SIGNATURE_SHAPE, _signed(Form(references=2))),
    "reference to the document": (SamlFault.SIGNATURE_SHAPE, _signed(Form(uri=""))),
    "reference to another element": (SamlFault.SIGNATURE_SHAPE, _signed(Form(uri="#_assertion"))),
    "reference by XPointer": (SamlFault.SIGNATURE_SHAPE, _signed(Form(uri="#xpointer(/)"))),
    "no reference": (SamlFault.SIGNATURE_SHAPE, _edited(("<ds:Reference.*</ds:Reference>", ""))),
    "XPointer as ID": (
        SamlFault.SIGNATURE_SHAPE,
        lambda provider: provider.respond(Content(response_id="xpointer(/)"), signed=["response"]),
    ),
    "reference of a type": (SamlFault.SIGNATURE_SHAPE, _edited(("<ds:Reference ", f'<ds:Reference Type="{DS}Manifest" '))),
    "Manifest": (SamlFault.SIGNATURE_SHAPE, _inserted(".//ds:Signature", '<ds:Object Id="_o"><ds:Manifest/></ds:Object>')),
    "two SignedInfo": (SamlFault.SIGNATURE_SHAPE, _doubled(".//ds:SignedInfo")),
    "two signature values": (SamlFault.SIGNATURE_SHAPE, _doubled(".//ds:SignatureValue")),
    "two digest values": (SamlFault.SIGNATURE_SHAPE, _doubled(".//ds:DigestValue")),
    "two KeyInfo": (SamlFault.SIGNATURE_SHAPE, _doubled(".//ds:KeyInfo")),
    "output length": (SamlFault.SIGNATURE_SHAPE, _inserted(".//ds:SignatureMethod", "<ds:HMACOutputLength >1</ds:HMACOutputLength>")),
    "text in the signature": (SamlFault.SIGNATURE_SHAPE, _edited(("<ds:SignedInfo>", "<ds:SignedInfo>x"))),
    "element in a digest": (SamlFault.SIGNATURE_SHAPE, _inserted(".//ds:DigestValue", "<ds:X />")),
    "default namespace": (SamlFault.SIGNATURE_SHAPE, _with_default_namespace),
    "many prefixes": (SamlFault.SIGNATURE_SHAPE, _signed(Form(prefixes=" ".join(f"p{n}" for n in range(33))))),
    "malformed canonical form": (
        SamlFault.SIGNATURE_SHAPE,
        _edited(("<ds:DigestValue>", '<ds:DigestValue xmlns:x="urn:a&amp;b" x:y="">')),
    ),
    "no base64": (SamlFault.SIGNATURE_SHAPE, _edited(("(<ds:DigestValue>)", r"\1!"))),
    "short signature": (SamlFault.SIGNATURE_SHAPE, _edited(("(<ds:SignatureValue>).*(</ds:SignatureValue>)", r"\1AAAA\2"))),
    "no signature": (SamlFault.UNSIGNED, lambda provider: serialize(build(Content()))),
    "two signatures": (SamlFault.SIGNATURE_PLACE, _doubled(".//ds:Signature")),
    "signature in the Status": (SamlFault.SIGNATURE_PLACE, _inserted("samlp:Status", "<ds:Signature />")),
    "signature in the Subject": (SamlFault.SIGNATURE_PLACE, _inserted(".//saml:Subject", "<ds:Signature />")),
    "assertion of an attacker": (SamlFault.SIGNATURE_WRONG, lambda idp: _signed_by(idp.attacker, idp.certificate)),
    "response of an attacker": (SamlFault.SIGNATURE_WRONG, lambda idp: _signed_by(idp.certificate, idp.attacker)),
    "same id": (SamlFault.DUPLICATE_ID, _edited(("<samlp:Status>", '<samlp:Status id="_response">'))),
    "same xml:id": (SamlFault.DUPLICATE_ID, _edited(("<samlp:Status>", '<samlp:Status xml:id="_response">'))),
    "same ID in a namespace": (SamlFault.DUPLICATE_ID, _edited(("<samlp:Status>", '<samlp:Status samlp:ID="_assertion">'))),
}


@pytest.mark.slow
async def test_signatures_of_another_form_are_refused(verifier: SamlProviders, provider: IdentityProvider) -> None:
    assert await refusals(verifier, provider, SIGNATURES) == []


async def test_the_key_and_the_comments_of_the_sender_change_nothing(verifier: SamlProviders, provider: IdentityProvider) -> None:
    stated = identity(Content(), provider.certificate.certificate)
    harmless = {
        "no KeyInfo": _edited(("<ds:KeyInfo>.*</ds:KeyInfo>", "")),
        "address of a key": _edited(
            ("<ds:KeyInfo>.*</ds:KeyInfo>", r'<ds:KeyInfo><ds:RetrievalMethod URI="file:///etc/passwd"/></ds:KeyInfo>')
        ),
        "comment in the name": _edited(("ada &amp; ", "ada<!-- --> &amp; ")),
        "comment in the digest": _edited(("(<ds:DigestValue>)", r"\1<!--Zm9yZ2Vk-->")),
    }
    for case in harmless.values():
        assert await verifier.read(await verifier.parse(case(provider)), provider.partner(), NOW, expected=REQUEST) == stated


# Documents


def _bytes(change: Callable[[str], bytes]) -> Case:
    return lambda provider: change(serialize(signed_response(provider)).decode())


ENTITY: Final = '<!DOCTYPE r [<!ENTITY a "victim">]>'
MANY: Final = " ".join(f'xmlns:a{number}="urn:a"' for number in range(65))
DOCUMENTS: Final[Cases] = {
    "DOCTYPE": (SamlFault.MALFORMED, _bytes(lambda text: f"<!DOCTYPE r>{text}".encode())),
    "entity": (SamlFault.MALFORMED, _bytes(lambda text: (ENTITY + text.replace("7f3a", "&a;")).encode())),
    "UTF-16": (SamlFault.MALFORMED, _bytes(lambda text: text.encode("utf-16"))),
    "UTF-7": (SamlFault.MALFORMED, _bytes(lambda text: f'<?xml version="1.0" encoding="UTF-7"?>{text}'.encode())),
    "processing instruction": (SamlFault.MALFORMED, _bytes(lambda text: text.replace("</samlp:Status>", "<?x?></samlp:Status>").encode())),
    "white space before": (SamlFault.MALFORMED, _bytes(lambda text: f" {text}".encode())),
    "two roots": (SamlFault.MALFORMED, _bytes(lambda text: f"{text}<r/>".encode())),
    "another root": (SamlFault.MALFORMED, _bytes(lambda text: text.replace("samlp:Response", "samlp:ArtifactResponse").encode())),
    "version 1.1": (SamlFault.MALFORMED, _bytes(lambda text: text.replace('Version="2.0"', 'Version="1.1"', 1).encode())),
    "no Status": (SamlFault.MALFORMED, _bytes(lambda text: re.sub("<samlp:Status>.*</samlp:Status>", "", text).encode())),
    "no assertion": (
        SamlFault.ASSERTION_COUNT,
        _bytes(lambda text: re.sub("<saml:Assertion.*</saml:Assertion>", "", text, flags=re.DOTALL).encode()),
    ),
    "deep": (SamlFault.TOO_LARGE, _inserted("samlp:Status", "<a >" + "<a>" * 63 + "</a>" * 64)),
    "many elements": (SamlFault.TOO_LARGE, _inserted("samlp:Status", f"<a >{'<a/>' * 5_000}</a>")),
    "many XML attributes": (SamlFault.TOO_LARGE, _inserted("samlp:Status", f"<a {MANY.replace('xmlns:', '')}/>")),
    "many namespaces": (SamlFault.TOO_LARGE, _inserted("samlp:Status", f"<a {MANY}/>")),
    "long namespace": (SamlFault.TOO_LARGE, _inserted("samlp:Status", f'<a xmlns:b="urn:{"a" * 256}"/>')),
    "many attributes": (
        SamlFault.TOO_LARGE,
        lambda provider: provider.respond(Content(attributes=[(f"a{n}", []) for n in range(201)]), signed=["response"]),
    ),
    "many values": (
        SamlFault.TOO_LARGE,
        lambda provider: provider.respond(Content(attributes=[("groups", ["a"] * 501)]), signed=["response"]),
    ),
    "long value": (
        SamlFault.TOO_LARGE,
        lambda provider: provider.respond(Content(attributes=[("a", ["a" * 8193])]), signed=["response"]),
    ),
    "long name": (
        SamlFault.TOO_LARGE,
        lambda provider: provider.respond(Content(attributes=[("a" * 8193, [])]), signed=["response"]),
    ),
}


async def test_other_documents_are_refused(verifier: SamlProviders, provider: IdentityProvider) -> None:
    assert await refusals(verifier, provider, DOCUMENTS) == []


def test_only_base64_of_a_document_is_decoded() -> None:
    """A deflated document is refused, because it can grow."""
    assert decode_response("PGEv\r\nPg==") == b"<a/>"
    faults = {
        "": SamlFault.MALFORMED,
        "PGEv!Pg==": SamlFault.MALFORMED,
        "PGEvPg": SamlFault.MALFORMED,
        encode_base64(b"\xef\xbb\xbf<a/>"): SamlFault.MALFORMED,
        encode_base64(b"\x03\x00"): SamlFault.MALFORMED,
        "A" * (MAX_ENCODED_RESPONSE + 1): SamlFault.TOO_LARGE,
    }
    for text, fault in faults.items():
        with pytest.raises(SamlResponseRefused) as refused:
            decode_response(text)
        assert refused.value.fault == fault


# Logout messages


def _with_long_namespace(text: str, siblings: str) -> str:
    """Return the message with a long namespace, which every sibling's canonical form repeats."""
    text = text.replace("<samlp:LogoutRequest ", f'<samlp:LogoutRequest xmlns:z="urn:{"a" * 10_000}" ', 1)
    return text.replace(siblings, f"{siblings}{'<z:b/>' * 1_000}", 1)


@pytest.mark.parametrize("siblings", ["<ds:SignedInfo>", "</saml:Issuer>"])
async def test_logout_messages_have_no_long_canonical_form(
    provider: IdentityProvider, monkeypatch: pytest.MonkeyPatch, siblings: str
) -> None:
    """Both ends of single logout refuse a stranger's message before its canonical form is written."""
    certificate = provider.certificate.certificate
    namespaces = f'xmlns:samlp="{NS["samlp"]}" xmlns:saml="{NS["saml"]}"'
    message = f'<samlp:LogoutRequest {namespaces} ID="_r"><saml:Issuer>i</saml:Issuer></samlp:LogoutRequest>'
    signed = signed_document(message.encode(), provider.certificate).decode()
    signed_parts.verify(parse(signed.encode()), [certificate])
    forged = _with_long_namespace(signed, siblings).encode()
    canonicalized: list[object] = []
    monkeypatch.setattr(signed_parts, "_canonicalize", lambda element, _: canonicalized.append(element))
    with pytest.raises(SamlResponseRefused) as refused:
        responses.read_request(forged, None, [certificate])
    assert refused.value.fault is SamlFault.TOO_LARGE
    with pytest.raises(LogoutSignatureInvalid):
        verification.verify(parse(forged), certificate)
    if siblings == "<ds:SignedInfo>":  # here, the shape alone is enough
        with pytest.raises(SamlResponseRefused):
            signed_parts.verify(parse(forged), [certificate])
    assert canonicalized == []
