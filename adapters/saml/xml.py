"""SAML documents, with lxml and xmlsec. They take megabytes, so documents.py loads this with the first document.

Nothing here is put together from text: every value enters through the document's object model (security.md X-7).
"""

import re
from collections.abc import Mapping
from copy import deepcopy
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import Any, Final
from urllib.parse import quote, urlencode, urlsplit

import xmlsec
from lxml import etree

from core.federation.saml.bindings import encode_post, encode_redirect
from core.federation.saml.configuration_rules import NameIdFormat, SamlIdentityProvider, endpoint_url
from core.federation.saml.messages import (
    HTTP_POST,
    AuthnRequest,
    ContextComparison,
    IncomingSamlMessage,
    LogoutRequest,
    LogoutResponse,
    NameId,
    NameIdPolicy,
    ReceivedNameId,
    RequestedContext,
    SamlAssertion,
    SamlMessageInvalid,
    SamlResponse,
    SamlStatus,
    new_message_id,
)

PROTOCOL: Final = "urn:oasis:names:tc:SAML:2.0:protocol"
ASSERTION: Final = "urn:oasis:names:tc:SAML:2.0:assertion"
METADATA: Final = "urn:oasis:names:tc:SAML:2.0:metadata"
DSIG: Final = "http://www.w3.org/2000/09/xmldsig#"
HTTP_REDIRECT: Final = "urn:oasis:names:tc:SAML:2.0:bindings:HTTP-Redirect"
BEARER: Final = "urn:oasis:names:tc:SAML:2.0:cm:bearer"
SUCCESS: Final = "urn:oasis:names:tc:SAML:2.0:status:Success"
REQUESTER: Final = "urn:oasis:names:tc:SAML:2.0:status:Requester"
RESPONDER: Final = "urn:oasis:names:tc:SAML:2.0:status:Responder"
UNSPECIFIED_NAME: Final = "urn:oasis:names:tc:SAML:2.0:attrname-format:unspecified"
BASIC_NAME: Final = "urn:oasis:names:tc:SAML:2.0:attrname-format:basic"
EXCLUSIVE_C14N: Final = "http://www.w3.org/2001/10/xml-exc-c14n#"
SHA256: Final = "http://www.w3.org/2001/04/xmlenc#sha256"
RSA_SHA256: Final = "http://www.w3.org/2001/04/xmldsig-more#rsa-sha256"

# How long an assertion is good for, and how far the clock of a service may be behind ours.
ASSERTION_TTL: Final = timedelta(minutes=5)
SKEW: Final = timedelta(seconds=60)

_INSTANT = re.compile(r"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)(?:\.(\d{1,12}))?(Z|[+-]\d\d:\d\d)?", re.ASCII)
_ENCODING = re.compile(rb"""<\?xml[^>]*?encoding\s*=\s*["']([^"']*)["']""")
_BOOLEANS: Final[Mapping[str | None, bool]] = {None: False, "false": False, "0": False, "true": True, "1": True}
_SPACES = " \t\r\n"


# Reading


def read(document: bytes) -> IncomingSamlMessage:
    """The message that this document is. Raises MessageInvalid."""
    root = _parsed(document)
    match root.tag:
        case _Tags.AUTHN_REQUEST:
            return AuthnRequest(
                **_said(root),
                acs_url=root.get("AssertionConsumerServiceURL"),
                binding=root.get("ProtocolBinding"),
                force_authn=_boolean(root, "ForceAuthn"),
                is_passive=_boolean(root, "IsPassive"),
                policy=_policy(root),
                subject=_subject(root),
                context=_context(root),
            )
        case _Tags.LOGOUT_REQUEST:
            indexes = tuple(_text(found) for found in root.findall(_Tags.SESSION_INDEX))
            return LogoutRequest(**_said(root), name_id=_named(_only(root, _Tags.NAME_ID)), session_indexes=indexes)
        case _Tags.LOGOUT_RESPONSE:
            status = _only(_only(root, _Tags.STATUS), _Tags.STATUS_CODE)
            # A service that signs people out elsewhere says by the second code that it has not reached everybody (SAML core, 3.7.3.2).
            within = {code.get("Value") for code in status.findall(_Tags.STATUS_CODE)}
            is_success = status.get("Value") == SUCCESS and SamlStatus.PARTIAL_LOGOUT not in within
            return LogoutResponse(**_said(root), in_response_to=root.get("InResponseTo") or "", is_success=is_success)
    raise SamlMessageInvalid


class _Tags:
    AUTHN_REQUEST = f"{{{PROTOCOL}}}AuthnRequest"
    LOGOUT_REQUEST = f"{{{PROTOCOL}}}LogoutRequest"
    LOGOUT_RESPONSE = f"{{{PROTOCOL}}}LogoutResponse"
    SESSION_INDEX = f"{{{PROTOCOL}}}SessionIndex"
    STATUS = f"{{{PROTOCOL}}}Status"
    STATUS_CODE = f"{{{PROTOCOL}}}StatusCode"
    ISSUER = f"{{{ASSERTION}}}Issuer"
    NAME_ID = f"{{{ASSERTION}}}NameID"
    BASE_ID = f"{{{ASSERTION}}}BaseID"
    ENCRYPTED_ID = f"{{{ASSERTION}}}EncryptedID"
    SUBJECT = f"{{{ASSERTION}}}Subject"
    NAME_ID_POLICY = f"{{{PROTOCOL}}}NameIDPolicy"
    REQUESTED_CONTEXT = f"{{{PROTOCOL}}}RequestedAuthnContext"
    CONTEXT_CLASS = f"{{{ASSERTION}}}AuthnContextClassRef"


def _parsed(document: bytes) -> Any:
    # A document type is refused before anything is made of it. In UTF-8, which is the only encoding that is read, it has one spelling.
    declared = _ENCODING.match(document)
    if b"<!DOCTYPE" in document or (declared is not None and declared[1].lower() != b"utf-8"):
        raise SamlMessageInvalid
    parser = etree.XMLParser(
        encoding="utf-8",
        no_network=True,
        load_dtd=False,
        dtd_validation=False,
        attribute_defaults=False,
        resolve_entities=False,
        huge_tree=False,
        remove_comments=True,  # so that a text is in one piece, and nothing in it is hidden (CVE-2026-57580)
    )
    try:
        document.decode("utf-8")
        root = etree.fromstring(document, parser)
    except (etree.XMLSyntaxError, ValueError):
        raise SamlMessageInvalid from None
    around = (*root.itersiblings(preceding=True), *root.itersiblings())
    if around or any(not isinstance(node.tag, str) for node in root.iter()):  # a processing instruction
        raise SamlMessageInvalid
    return root


def _said(root: Any) -> dict[str, Any]:
    if root.get("Version") != "2.0":
        raise SamlMessageInvalid
    return {
        "id": root.get("ID") or "",
        "issue_instant": _instant(root.get("IssueInstant") or ""),
        "destination": root.get("Destination"),
        "issuer": _text(_only(root, _Tags.ISSUER)),
    }


def _policy(root: Any) -> NameIdPolicy | None:
    found = _at_most_one(root, _Tags.NAME_ID_POLICY)
    return None if found is None else NameIdPolicy(format=found.get("Format"), sp_name_qualifier=found.get("SPNameQualifier"))


def _subject(root: Any) -> ReceivedNameId | None:
    # Whoever brings a request without an identifier is meant (SAML core, section 3.4.1). How they are to prove it does not belong into one
    # (SAML profiles, section 4.1.4.1), but python3-saml says it all the same.
    subject = _at_most_one(root, _Tags.SUBJECT)
    if subject is None:
        return None
    if any(subject.find(tag) is not None for tag in (_Tags.BASE_ID, _Tags.ENCRYPTED_ID)):
        return ReceivedNameId()
    found = _at_most_one(subject, _Tags.NAME_ID)
    return None if found is None else _named(found)


def _named(element: Any) -> ReceivedNameId:
    return ReceivedNameId(
        value=_text(element),
        format=element.get("Format"),
        name_qualifier=element.get("NameQualifier"),
        sp_name_qualifier=element.get("SPNameQualifier"),
    )


def _context(root: Any) -> RequestedContext | None:
    found = _at_most_one(root, _Tags.REQUESTED_CONTEXT)
    if found is None or len(found) == 0:
        return None
    try:
        comparison = ContextComparison(found.get("Comparison", ContextComparison.EXACT))
    except ValueError:
        raise SamlMessageInvalid from None
    return RequestedContext(comparison=comparison, classes=tuple(_text(one) for one in found.findall(_Tags.CONTEXT_CLASS)))


def _at_most_one(parent: Any, tag: str) -> Any:
    return _only(parent, tag) if parent.find(tag) is not None else None


def _only(parent: Any, tag: str) -> Any:
    found = parent.findall(tag)
    if len(found) != 1:
        raise SamlMessageInvalid
    return found[0]


def _text(element: Any) -> str:
    """What stands in an element of the simple kind."""
    if len(element):
        raise SamlMessageInvalid
    return str(element.text or "").strip(_SPACES)


def _boolean(root: Any, name: str) -> bool:
    value = _BOOLEANS.get(root.get(name))
    if value is None:
        raise SamlMessageInvalid
    return value


def _instant(text: str) -> datetime:
    found = _INSTANT.fullmatch(text)
    try:
        if found is None:
            raise ValueError
        time = datetime.fromisoformat(f"{found[1]}.{(found[2] or '0')[:6]:0<6}{found[3] or 'Z'}")
        return time.astimezone(UTC)
    except (ValueError, OverflowError):
        raise SamlMessageInvalid from None


# Writing


def metadata(base_url: str, provider: SamlIdentityProvider) -> bytes:
    """An EntityDescriptor, valid by the schema."""
    service = provider.service
    root = etree.Element(f"{{{METADATA}}}EntityDescriptor", {"entityID": endpoint_url(base_url, service)}, {"md": METADATA, "ds": DSIG})
    role = _add(root, METADATA, "IDPSSODescriptor", WantAuthnRequestsSigned="false", protocolSupportEnumeration=PROTOCOL)
    key = _add(role, METADATA, "KeyDescriptor", use="signing")
    data = _add(_add(key, DSIG, "KeyInfo"), DSIG, "X509Data")
    _add(data, DSIG, "X509Certificate").text = _base64_of(provider.certificate.certificate)
    for binding in (HTTP_REDIRECT, HTTP_POST):
        _add(role, METADATA, "SingleLogoutService", Binding=binding, Location=endpoint_url(base_url, service, "slo"))
    _add(role, METADATA, "NameIDFormat").text = provider.name_id_format.value
    for binding in (HTTP_REDIRECT, HTTP_POST):
        _add(role, METADATA, "SingleSignOnService", Binding=binding, Location=endpoint_url(base_url, service, "sso"))
    return _bytes(root, declaration=True)


def response(base_url: str, provider: SamlIdentityProvider, said: SamlResponse) -> bytes:
    """A Response to the ACS URL, signed as the configuration says."""
    issuer = endpoint_url(base_url, provider.service)
    root = etree.Element(f"{{{PROTOCOL}}}Response", nsmap={"samlp": PROTOCOL, "saml": ASSERTION})
    _head(root, said.id, said.issued_at, issuer, provider.acs_url)
    if said.in_response_to is not None:
        root.set("InResponseTo", said.in_response_to)
    _status(root, said.status)
    if said.assertion is not None:
        assertion = _assertion(root, issuer, provider, said, said.assertion)
        if provider.sign_assertions:
            _sign(assertion, provider)
    if provider.sign_response or said.assertion is None:
        _sign(root, provider)
    return _bytes(root)


def _assertion(root: Any, issuer: str, provider: SamlIdentityProvider, said: SamlResponse, told: SamlAssertion) -> Any:
    until = _written(said.issued_at + ASSERTION_TTL)
    assertion = _add(root, ASSERTION, "Assertion")
    _head(assertion, told.id, said.issued_at, issuer, None)
    subject = _add(assertion, ASSERTION, "Subject")
    _name_id(subject, issuer, provider, told.name_id)
    confirmation = _add(subject, ASSERTION, "SubjectConfirmation", Method=BEARER)
    bearer = _add(confirmation, ASSERTION, "SubjectConfirmationData", NotOnOrAfter=until, Recipient=provider.acs_url)
    if said.in_response_to is not None:
        bearer.set("InResponseTo", said.in_response_to)
    conditions = _add(assertion, ASSERTION, "Conditions", NotBefore=_written(said.issued_at - SKEW), NotOnOrAfter=until)
    _add(_add(conditions, ASSERTION, "AudienceRestriction"), ASSERTION, "Audience").text = provider.entity_id
    statement = _add(assertion, ASSERTION, "AuthnStatement", AuthnInstant=_written(told.authenticated_at), SessionIndex=told.session_index)
    _add(_add(statement, ASSERTION, "AuthnContext"), ASSERTION, "AuthnContextClassRef").text = told.context_class
    if told.attributes:
        attributes = _add(assertion, ASSERTION, "AttributeStatement")
        for name, value in told.attributes.items():
            attribute = _add(attributes, ASSERTION, "Attribute", Name=name, NameFormat=_name_format(name))
            _add(attribute, ASSERTION, "AttributeValue").text = value
    return assertion


def _name_format(name: str) -> str:
    # Basic names have no spaces (SAML core, section 8.2.3).
    return UNSPECIFIED_NAME if any(letter.isspace() for letter in name) else BASIC_NAME


def logout_request(
    base_url: str, provider: SamlIdentityProvider, request_id: str, name_id: NameId, session_index: str, now: datetime
) -> str:
    """The address at which the service is asked to sign somebody out."""
    issuer = endpoint_url(base_url, provider.service)
    root = etree.Element(f"{{{PROTOCOL}}}LogoutRequest", nsmap={"samlp": PROTOCOL, "saml": ASSERTION})
    _head(root, request_id, now, issuer, provider.slo_url)
    root.set("NotOnOrAfter", _written(now + ASSERTION_TTL))
    _name_id(root, issuer, provider, name_id)
    _add(root, PROTOCOL, "SessionIndex").text = session_index
    return _signed_address(provider, "SAMLRequest", root, None)


def logout_response(
    base_url: str, provider: SamlIdentityProvider, in_response_to: str, status: SamlStatus | None, relay_state: str | None, now: datetime
) -> str:
    """The address at which the service is told what became of its request."""
    root = etree.Element(f"{{{PROTOCOL}}}LogoutResponse", nsmap={"samlp": PROTOCOL, "saml": ASSERTION})
    _head(root, new_message_id(), now, endpoint_url(base_url, provider.service), provider.slo_url)
    root.set("InResponseTo", in_response_to)
    _status(root, status)
    return _signed_address(provider, "SAMLResponse", root, relay_state)


def _head(element: Any, id_: str, now: datetime, issuer: str, destination: str | None) -> None:
    element.set("ID", id_)
    element.set("Version", "2.0")
    element.set("IssueInstant", _written(now))
    if destination is not None:
        element.set("Destination", destination)
    _add(element, ASSERTION, "Issuer").text = issuer


def _name_id(parent: Any, issuer: str, provider: SamlIdentityProvider, name_id: NameId) -> None:
    element = _add(parent, ASSERTION, "NameID", Format=name_id.format.value)
    if name_id.format in (NameIdFormat.PERSISTENT, NameIdFormat.TRANSIENT):  # whose name it is, and for whom (SAML core, section 8.3.7)
        element.set("NameQualifier", issuer)
        element.set("SPNameQualifier", provider.entity_id)
    element.text = name_id.value


def _status(root: Any, status: SamlStatus | None) -> None:
    # Partial logout is success in part: it comes below it (SAML core, section 3.7.3.2).
    match status:
        case None | SamlStatus.PARTIAL_LOGOUT:
            outer = SUCCESS
        case SamlStatus.NO_PASSIVE | SamlStatus.NO_AUTHN_CONTEXT:
            outer = RESPONDER
        case SamlStatus.UNKNOWN_PRINCIPAL | SamlStatus.INVALID_NAME_ID_POLICY:
            outer = REQUESTER
    code = _add(_add(root, PROTOCOL, "Status"), PROTOCOL, "StatusCode", Value=outer)
    if status is not None:
        _add(code, PROTOCOL, "StatusCode", Value=status.value)


def _add(parent: Any, namespace: str, name: str, **attributes: str) -> Any:
    return etree.SubElement(parent, f"{{{namespace}}}{name}", attributes)


def _written(time: datetime) -> str:
    return f"{time.astimezone(UTC):%Y-%m-%dT%H:%M:%S}.{time.microsecond // 1000:03}Z"


def _bytes(root: Any, *, declaration: bool = False) -> bytes:
    written: bytes = etree.tostring(root, encoding="UTF-8", xml_declaration=declaration)
    return written


def _base64_of(pem: str) -> str:
    return "".join(line for line in pem.splitlines() if not line.startswith("-----"))


# Signing


# Put together once, since each call of xmlsec's own templates lets the interpreter go and has to wait for it.
_SIGNATURE: Final = etree.fromstring(f"""
<ds:Signature xmlns:ds="{DSIG}"><ds:SignedInfo
    ><ds:CanonicalizationMethod Algorithm="{EXCLUSIVE_C14N}"/><ds:SignatureMethod Algorithm="{RSA_SHA256}"/><ds:Reference
    ><ds:Transforms><ds:Transform Algorithm="{DSIG}enveloped-signature"/><ds:Transform Algorithm="{EXCLUSIVE_C14N}"/></ds:Transforms
    ><ds:DigestMethod Algorithm="{SHA256}"/><ds:DigestValue/></ds:Reference></ds:SignedInfo><ds:SignatureValue/><ds:KeyInfo
    ><ds:X509Data><ds:X509Certificate/></ds:X509Data></ds:KeyInfo></ds:Signature>""")


def _sign(element: Any, provider: SamlIdentityProvider) -> None:
    """Sign the element, which has an issuer, right behind that, where the schema wants the signature."""
    signature = deepcopy(_SIGNATURE)
    signature.find(f".//{{{DSIG}}}Reference").set("URI", f"#{element.get('ID')}")
    signature.find(f".//{{{DSIG}}}X509Certificate").text = _base64_of(provider.certificate.certificate)
    element.insert(1, signature)
    context = xmlsec.SignatureContext()
    context.key = _key(provider.certificate.private_key())
    context.register_id(element, "ID")
    context.sign(signature)


def _signed_address(provider: SamlIdentityProvider, parameter: str, root: Any, relay_state: str | None) -> str:
    """The SLO URL of the service with this message (SAML bindings, section 3.4.4.1): what is signed is the query as it is sent."""
    fields = {parameter: encode_redirect(_bytes(root))}
    if relay_state is not None:
        fields["RelayState"] = relay_state
    query = urlencode({**fields, "SigAlg": RSA_SHA256}, quote_via=quote, safe="")
    context = xmlsec.SignatureContext()
    context.key = _key(provider.certificate.private_key())
    signature = context.sign_binary(query.encode(), xmlsec.constants.TransformRsaSha256)
    assert provider.slo_url is not None, "who has none is sent nothing"
    joint = "&" if urlsplit(provider.slo_url).query else "?"
    return f"{provider.slo_url}{joint}{query}&{urlencode({'Signature': encode_post(signature)}, quote_via=quote, safe='')}"


@lru_cache(maxsize=64)
def _key(private_key: bytes) -> Any:
    """Reading a key takes a third of what signing with it does."""
    return xmlsec.Key.from_memory(private_key, xmlsec.constants.KeyDataFormatPem)
