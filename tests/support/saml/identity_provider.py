"""An identity provider for the response verifier. It signs and encrypts with python-xmlsec, without the code under test."""

import html
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from functools import cache
from typing import Any, Final

import xmlsec
from lxml import etree

from adapters.crypto import X509Certificates
from core.federation.connections.model.saml_responses import AssertedAttribute, AssertedIdentity, AssertedNameId, SamlPartner
from core.federation.saml.model.configuration import SamlCertificate
from tests.support.saml import NS, STATUS, format_instant

NOW: Final = datetime(2026, 11, 27, 12, 0, tzinfo=UTC)
ENTITY_ID: Final = "https://idp.example.com/metadata"
AUDIENCE: Final = "https://sso.example.com/auth/connections/1"
ACS_URL: Final = f"{AUDIENCE}/acs"
REQUEST: Final = "_request"
PERSISTENT: Final = "urn:oasis:names:tc:SAML:2.0:nameid-format:persistent"
URI_NAME: Final = "urn:oasis:names:tc:SAML:2.0:attrname-format:uri"
PASSWORD: Final = "urn:oasis:names:tc:SAML:2.0:ac:classes:PasswordProtectedTransport"
BEARER: Final = "urn:oasis:names:tc:SAML:2.0:cm:bearer"
XSI: Final = "http://www.w3.org/2001/XMLSchema-instance"
XENC: Final = "http://www.w3.org/2001/04/xmlenc#"

constants = xmlsec.constants


def find(element: Any, path: str) -> Any:
    """Return the first element at an XPath."""
    return element.xpath(path, namespaces={**NS, "xenc": XENC})[0]


@dataclass(frozen=True, slots=True, kw_only=True)
class Content:
    """What a response contains; every text is written into the document as it is."""

    response_id: str = "_response"
    assertion_id: str = "_assertion"
    response_attributes: str = f'Destination="{ACS_URL}" InResponseTo="{REQUEST}"'
    issuer: str = ENTITY_ID
    issued: str = format_instant(NOW)
    status: str = f'<samlp:StatusCode Value="{STATUS}Success"/>'
    name_id: str = (
        f'<saml:NameID Format="{PERSISTENT}" NameQualifier="{ENTITY_ID}" SPNameQualifier="{AUDIENCE}">ada &amp; 7f3a</saml:NameID>'
    )
    bearer: str = f'Recipient="{ACS_URL}" InResponseTo="{REQUEST}" NotOnOrAfter="{format_instant(NOW + timedelta(minutes=5))}"'
    confirmations: str = ""  # further confirmations, before the bearer
    conditions: str = (
        f'NotBefore="{format_instant(NOW - timedelta(minutes=1))}" NotOnOrAfter="{format_instant(NOW + timedelta(minutes=10))}"'
    )
    restrictions: str = f"<saml:AudienceRestriction><saml:Audience>{AUDIENCE}</saml:Audience></saml:AudienceRestriction>"
    statement: str = (
        f'<saml:AuthnStatement AuthnInstant="{format_instant(NOW - timedelta(minutes=2))}" SessionIndex="_session" '
        f'SessionNotOnOrAfter="{format_instant(NOW + timedelta(hours=8))}"><saml:AuthnContext>'
        f"<saml:AuthnContextClassRef>{PASSWORD}</saml:AuthnContextClassRef></saml:AuthnContext></saml:AuthnStatement>"
    )
    attributes: Sequence[tuple[str, Sequence[str]]] = (("mail", ["ada@example.com"]), ("groups", ["staff", "<b>"]))
    values: str = ""  # further attributes
    extensions: str = ""


def attribute(name: str, *values: str) -> str:
    """Return an attribute. Its values are XML."""
    written = "\n".join(f'<saml:AttributeValue xsi:type="xs:string">{value}</saml:AttributeValue>' for value in values)
    return f'<saml:Attribute Name="{name}" NameFormat="{URI_NAME}" FriendlyName="f">{written}</saml:Attribute>'


def build(content: Content) -> Any:
    """Return a Response with white space between its elements, as many identity providers write it."""
    attributes = "\n".join(attribute(name, *map(html.escape, values)) for name, values in content.attributes)
    return etree.fromstring(f"""<samlp:Response xmlns:samlp="{NS["samlp"]}" xmlns:saml="{NS["saml"]}" xmlns:xsi="{XSI}"
  xmlns:xs="http://www.w3.org/2001/XMLSchema" ID="{content.response_id}" Version="2.0" IssueInstant="{content.issued}"
  {content.response_attributes}>
  <saml:Issuer>{content.issuer}</saml:Issuer>
  {content.extensions}
  <samlp:Status>{content.status}</samlp:Status>
  <saml:Assertion ID="{content.assertion_id}" Version="2.0" IssueInstant="{content.issued}">
    <saml:Issuer>{content.issuer}</saml:Issuer>
    <saml:Subject>{content.name_id}{content.confirmations}
      <saml:SubjectConfirmation Method="{BEARER}"><saml:SubjectConfirmationData {content.bearer}/></saml:SubjectConfirmation>
    </saml:Subject>
    <saml:Conditions {content.conditions}>{content.restrictions}</saml:Conditions>
    {content.statement}
    <saml:AttributeStatement>{attributes}{content.values}</saml:AttributeStatement>
  </saml:Assertion>
</samlp:Response>""")


def identity(content: Content, certificate: str) -> AssertedIdentity:
    """Return the identity in a response with the usual times."""
    return AssertedIdentity(
        assertion_id=content.assertion_id,
        issuer=ENTITY_ID,
        name_id=AssertedNameId(value="ada & 7f3a", format=PERSISTENT, name_qualifier=ENTITY_ID, sp_name_qualifier=AUDIENCE),
        attributes=tuple(AssertedAttribute(name=name, name_format=URI_NAME, values=tuple(values)) for name, values in content.attributes),
        in_response_to=REQUEST,
        authenticated_at=NOW - timedelta(minutes=2),
        context_class=PASSWORD,
        session_index="_session",
        session_ends_at=NOW + timedelta(hours=8),
        valid_until=NOW + timedelta(minutes=5),
        certificate=certificate,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Form:
    """A signature's options."""

    method: Any = constants.TransformRsaSha256
    digest: Any = constants.TransformSha256
    canonicalization: Any = constants.TransformExclC14N
    transforms: Sequence[Any] = (constants.TransformEnveloped, constants.TransformExclC14N)
    prefixes: str | None = None  # in the last transform
    signed_info_prefixes: str | None = None
    uri: str | None = None  # the element's ID without it
    references: int = 1


USUAL: Final = Form()


def sign(element: Any, certificate: SamlCertificate, form: Form = USUAL) -> Any:
    """Sign an element where it stands in its document, and return its Signature, which follows its Issuer."""
    signature = xmlsec.template.create(element, form.canonicalization, form.method, ns="ds")
    signature.tail = "\n  "
    element.insert(1, signature)
    if form.signed_info_prefixes is not None:
        tag = "{http://www.w3.org/2001/10/xml-exc-c14n#}InclusiveNamespaces"
        etree.SubElement(find(signature, ".//ds:CanonicalizationMethod"), tag, PrefixList=form.signed_info_prefixes)
    for _ in range(form.references):
        uri = f"#{element.get('ID')}" if form.uri is None else form.uri
        reference = xmlsec.template.add_reference(signature, form.digest, uri=uri)
        for transform in form.transforms:
            node = xmlsec.template.add_transform(reference, transform)
        if form.prefixes is not None:
            xmlsec.template.transform_add_c14n_inclusive_namespaces(node, form.prefixes)
    xmlsec.template.add_x509_data(xmlsec.template.ensure_key_info(signature))
    context = xmlsec.SignatureContext()
    context.key = _private_key(certificate.private_key(), certificate.certificate)
    for target in element.getroottree().getroot().iter():
        if target.get("ID") is not None:
            context.register_id(target, "ID")
    context.sign(signature)
    return signature


@cache
def _private_key(pem: bytes, certificate: bytes) -> Any:
    """Return the key. Loading a key checks it, which takes longer than a signature, so every key is loaded once."""
    key = xmlsec.Key.from_memory(pem, constants.KeyDataFormatPem)
    key.load_cert_from_memory(certificate, constants.KeyDataFormatPem)
    return key


@dataclass(frozen=True, slots=True, kw_only=True)
class Encryption:
    """An encryption's options."""

    cipher: Any = constants.TransformAes256Gcm
    bits: int = 256
    transport: Any = constants.TransformRsaOaep
    is_beside: bool = False  # the key is beside the data, as Okta writes it
    algorithm: str | None = None  # the key transport's, in place of the algorithm in `transport`
    parts: Mapping[str, str] = field(default_factory=dict)  # its child elements' algorithms, by tag


GCM: Final = Encryption()
CBC: Final = Encryption(cipher=constants.TransformAes128Cbc, bits=128)


def encrypt(response: Any, certificate: SamlCertificate, encryption: Encryption = GCM) -> Any:
    """Replace a response's assertion by an encrypted assertion. Return the EncryptedAssertion."""
    assertion = find(response, "saml:Assertion")
    holder = etree.Element(f"{{{NS['saml']}}}EncryptedAssertion")
    response.replace(assertion, holder)
    holder.append(assertion)
    assertion.tail = None
    template = xmlsec.template.encrypted_data_create(holder, encryption.cipher, type=constants.TypeEncElement, ns="xenc")
    xmlsec.template.encrypted_data_ensure_cipher_value(template)
    key = xmlsec.template.add_encrypted_key(xmlsec.template.encrypted_data_ensure_key_info(template, ns="ds"), encryption.transport)
    xmlsec.template.encrypted_data_ensure_cipher_value(key)
    method = find(key, "xenc:EncryptionMethod")
    method.set("Algorithm", encryption.algorithm or method.get("Algorithm"))
    for tag, algorithm in encryption.parts.items():
        etree.SubElement(method, tag, Algorithm=algorithm)
    manager = xmlsec.KeysManager()
    manager.add_key(xmlsec.Key.from_memory(certificate.certificate, constants.KeyDataFormatCertPem))
    context = xmlsec.EncryptionContext(manager)
    context.key = xmlsec.Key.generate(constants.KeyDataAes, encryption.bits, constants.KeyDataTypeSession)
    context.encrypt_xml(template, assertion)
    if encryption.is_beside:
        key = find(holder, ".//xenc:EncryptedKey")
        key.set("Id", "_key")
        parent = key.getparent()
        parent.remove(key)
        etree.SubElement(parent, f"{{{NS['ds']}}}RetrievalMethod", URI="#_key")
        holder.append(key)
    return holder


def serialize(root: Any) -> bytes:
    return bytes(etree.tostring(root))


@dataclass(frozen=True, slots=True)
class IdentityProvider:
    """The keys of an identity provider, an attacker and the connection."""

    certificate: SamlCertificate
    others: tuple[SamlCertificate, ...]  # further provider keys
    attacker: SamlCertificate
    ours: SamlCertificate  # to decrypt
    our_next: SamlCertificate

    def partner(self, **changes: Any) -> SamlPartner:
        partner = SamlPartner(
            entity_id=ENTITY_ID,
            certificates=(self.certificate.certificate,),
            audience=AUDIENCE,
            acs_url=ACS_URL,
            decryption_keys=(self.our_next.private_key, self.ours.private_key),
        )
        return replace(partner, **changes)

    def respond(self, content: Content, *, signed: Sequence[str], encryption: Encryption | None = None, form: Form = USUAL) -> bytes:
        """Return a response with these parts signed: `assertion`, `response`."""
        response = build(content)
        if "assertion" in signed:
            sign(find(response, "saml:Assertion"), self.certificate, form)
        if encryption is not None:
            encrypt(response, self.ours, encryption)
        if "response" in signed:
            sign(response, self.certificate, form)
        return serialize(response)


_certificates: dict[str, SamlCertificate] = {}


async def new_identity_provider() -> IdentityProvider:
    return IdentityProvider(
        await _certificate("idp"),
        (await _certificate("idp old"), await _certificate("idp next")),
        await _certificate("attacker"),
        await _certificate("ours"),
        await _certificate("ours next"),
    )


async def _certificate(name: str) -> SamlCertificate:
    """Return a certificate that is valid also on the real date, for judges that look at it. Its key is generated once."""
    if name not in _certificates:
        _certificates[name] = await X509Certificates().create(name, name, datetime(2020, 1, 1, tzinfo=UTC), 100)
    return _certificates[name]
