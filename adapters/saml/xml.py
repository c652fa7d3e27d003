"""Parsing and writing SAML documents with lxml.

The libraries need megabytes, so `documents` imports this module only for the first document. No document is assembled
from text: every value enters through the DOM (security X-7).
"""

import re
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, Final
from urllib.parse import urlsplit

from lxml import etree

from adapters.saml import signatures
from adapters.saml.parsing import parse
from adapters.saml.signatures import DSIG
from core.federation.saml.model import configuration, messages

PROTOCOL: Final = "urn:oasis:names:tc:SAML:2.0:protocol"
ASSERTION: Final = "urn:oasis:names:tc:SAML:2.0:assertion"
METADATA: Final = "urn:oasis:names:tc:SAML:2.0:metadata"
HTTP_REDIRECT: Final = "urn:oasis:names:tc:SAML:2.0:bindings:HTTP-Redirect"
BEARER: Final = "urn:oasis:names:tc:SAML:2.0:cm:bearer"
SUCCESS: Final = "urn:oasis:names:tc:SAML:2.0:status:Success"
REQUESTER: Final = "urn:oasis:names:tc:SAML:2.0:status:Requester"
RESPONDER: Final = "urn:oasis:names:tc:SAML:2.0:status:Responder"
UNSPECIFIED_NAME: Final = "urn:oasis:names:tc:SAML:2.0:attrname-format:unspecified"
BASIC_NAME: Final = "urn:oasis:names:tc:SAML:2.0:attrname-format:basic"

# An assertion's lifetime, and how far a service's clock may be behind ours.
ASSERTION_TTL: Final = timedelta(minutes=5)
SKEW: Final = timedelta(seconds=60)

_INSTANT = re.compile(r"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)(?:\.(\d{1,12}))?(Z|[+-]\d\d:\d\d)?", re.ASCII)
_BOOLEANS: Final[Mapping[str | None, bool]] = {None: False, "false": False, "0": False, "true": True, "1": True}
_SPACES = " \t\r\n"


# Reading


def read(document: bytes) -> messages.IncomingSamlMessage:
    """Parse a document. Raises: SamlMessageInvalid."""
    return read_message(parse(document))


def read_message(root: Any) -> messages.IncomingSamlMessage:
    """Return the message with this root. Raises: SamlMessageInvalid."""
    match root.tag:
        case _Tags.AUTHN_REQUEST:
            return messages.AuthnRequest(
                **_common_fields(root),
                acs_url=root.get("AssertionConsumerServiceURL"),
                binding=root.get("ProtocolBinding"),
                force_authn=_boolean(root, "ForceAuthn"),
                is_passive=_boolean(root, "IsPassive"),
                policy=_name_id_policy(root),
                subject=_subject(root),
                context=_requested_context(root),
            )
        case _Tags.LOGOUT_REQUEST:
            indexes = tuple(_text(element) for element in root.findall(_Tags.SESSION_INDEX))
            name_id, ends_at = _received_name_id(_only(root, _Tags.NAME_ID)), root.get("NotOnOrAfter")
            end = None if ends_at is None else parse_instant(ends_at)
            return messages.LogoutRequest(**_common_fields(root), name_id=name_id, session_indexes=indexes, ends_at=end)
        case _Tags.LOGOUT_RESPONSE:
            status = _only(_only(root, _Tags.STATUS), _Tags.STATUS_CODE)
            # A service that signs users out of further services reports failures there in the
            # second-level code (SAML core section 3.7.3.2).
            second_level = {code.get("Value") for code in status.findall(_Tags.STATUS_CODE)}
            is_success = status.get("Value") == SUCCESS and messages.SamlStatus.PARTIAL_LOGOUT not in second_level
            return messages.LogoutResponse(**_common_fields(root), in_response_to=root.get("InResponseTo") or "", is_success=is_success)
    raise messages.SamlMessageInvalid


def is_signed(received: messages.ReceivedDocument, certificate: str) -> bool:
    """Return whether a message is signed with this certificate's key. Raises: LogoutSignatureInvalid, SamlMessageInvalid."""
    from adapters.saml import verification  # needs megabytes, and few services sign messages

    if received.signature is not None:
        verification.verify_query(received.signature, certificate)
        return True
    return verification.verify(parse(received.document), certificate)


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


def _common_fields(root: Any) -> dict[str, Any]:
    if root.get("Version") != "2.0":
        raise messages.SamlMessageInvalid
    return {
        "id": root.get("ID") or "",
        "issue_instant": parse_instant(root.get("IssueInstant") or ""),
        "destination": root.get("Destination"),
        "issuer": _text(_only(root, _Tags.ISSUER)),
    }


def _name_id_policy(root: Any) -> messages.NameIdPolicy | None:
    element = _at_most_one(root, _Tags.NAME_ID_POLICY)
    return (
        None if element is None else messages.NameIdPolicy(format=element.get("Format"), sp_name_qualifier=element.get("SPNameQualifier"))
    )


def _subject(root: Any) -> messages.ReceivedNameId | None:
    # A subject without an identifier means the user who delivers the request (SAML core section
    # 3.4.1). A SubjectConfirmation must not be there (SAML profiles section 4.1.4.1), but
    # python3-saml sends it, so it is ignored.
    subject = _at_most_one(root, _Tags.SUBJECT)
    if subject is None:
        return None
    if any(subject.find(tag) is not None for tag in (_Tags.BASE_ID, _Tags.ENCRYPTED_ID)):
        return messages.ReceivedNameId()
    element = _at_most_one(subject, _Tags.NAME_ID)
    return None if element is None else _received_name_id(element)


def _received_name_id(element: Any) -> messages.ReceivedNameId:
    return messages.ReceivedNameId(
        value=_text(element),
        format=element.get("Format"),
        name_qualifier=element.get("NameQualifier"),
        sp_name_qualifier=element.get("SPNameQualifier"),
    )


def _requested_context(root: Any) -> messages.RequestedContext | None:
    element = _at_most_one(root, _Tags.REQUESTED_CONTEXT)
    if element is None or len(element) == 0:
        return None
    try:
        comparison = messages.ContextComparison(element.get("Comparison", messages.ContextComparison.EXACT))
    except ValueError:
        raise messages.SamlMessageInvalid from None
    return messages.RequestedContext(comparison=comparison, classes=tuple(_text(class_) for class_ in element.findall(_Tags.CONTEXT_CLASS)))


def _at_most_one(parent: Any, tag: str) -> Any:
    return _only(parent, tag) if parent.find(tag) is not None else None


def _only(parent: Any, tag: str) -> Any:
    elements = parent.findall(tag)
    if len(elements) != 1:
        raise messages.SamlMessageInvalid
    return elements[0]


def _text(element: Any) -> str:
    """Return the text in an element without child elements."""
    if len(element):
        raise messages.SamlMessageInvalid
    return str(element.text or "").strip(_SPACES)


def _boolean(root: Any, name: str) -> bool:
    value = _BOOLEANS.get(root.get(name))
    if value is None:
        raise messages.SamlMessageInvalid
    return value


def parse_instant(text: str) -> datetime:
    """Return the point in time (UTC) in this text. Raises: SamlMessageInvalid."""
    match = _INSTANT.fullmatch(text)
    try:
        if match is None:
            raise ValueError
        time = datetime.fromisoformat(f"{match[1]}.{(match[2] or '0')[:6]:0<6}{match[3] or 'Z'}")
        return time.astimezone(UTC)
    except (ValueError, OverflowError):
        raise messages.SamlMessageInvalid from None


# Writing


def metadata(base_url: str, provider: configuration.SamlIdentityProvider, certificates: Sequence[configuration.SamlCertificate]) -> bytes:
    """Return an EntityDescriptor that is valid by the schema, with a KeyDescriptor per certificate."""
    service = provider.service
    root = etree.Element(
        f"{{{METADATA}}}EntityDescriptor", {"entityID": configuration.endpoint_url(base_url, service)}, {"md": METADATA, "ds": DSIG}
    )
    role = add(root, METADATA, "IDPSSODescriptor", WantAuthnRequestsSigned="false", protocolSupportEnumeration=PROTOCOL)
    add_keys(role, "signing", certificates)
    for binding in (HTTP_REDIRECT, messages.HTTP_POST):
        add(role, METADATA, "SingleLogoutService", Binding=binding, Location=configuration.endpoint_url(base_url, service, "slo"))
    add(role, METADATA, "NameIDFormat").text = provider.name_id_format.value
    for binding in (HTTP_REDIRECT, messages.HTTP_POST):
        add(role, METADATA, "SingleSignOnService", Binding=binding, Location=configuration.endpoint_url(base_url, service, "sso"))
    return serialize(root, declaration=True)


def response(base_url: str, provider: configuration.SamlIdentityProvider, message: messages.SamlResponse) -> bytes:
    """Return a Response to the ACS URL, signed as configured."""
    issuer = configuration.endpoint_url(base_url, provider.service)
    root = etree.Element(f"{{{PROTOCOL}}}Response", nsmap={"samlp": PROTOCOL, "saml": ASSERTION})
    add_header(root, message.id, message.issued_at, issuer, provider.acs_url)
    if message.in_response_to is not None:
        root.set("InResponseTo", message.in_response_to)
    add_status(root, message.status)
    if message.assertion is not None:
        assertion = _add_assertion(root, issuer, provider, message, message.assertion)
        if provider.sign_assertions:
            signatures.sign(assertion, provider.certificate)
    if provider.sign_response or message.assertion is None:
        signatures.sign(root, provider.certificate)
    return serialize(root)


def _add_assertion(
    root: Any, issuer: str, provider: configuration.SamlIdentityProvider, message: messages.SamlResponse, assertion: messages.SamlAssertion
) -> Any:
    until = format_instant(message.issued_at + ASSERTION_TTL)
    element = add(root, ASSERTION, "Assertion")
    add_header(element, assertion.id, message.issued_at, issuer, None)
    subject = add(element, ASSERTION, "Subject")
    _add_name_id(subject, issuer, provider, assertion.name_id)
    confirmation = add(subject, ASSERTION, "SubjectConfirmation", Method=BEARER)
    bearer = add(confirmation, ASSERTION, "SubjectConfirmationData", NotOnOrAfter=until, Recipient=provider.acs_url)
    if message.in_response_to is not None:
        bearer.set("InResponseTo", message.in_response_to)
    conditions = add(element, ASSERTION, "Conditions", NotBefore=format_instant(message.issued_at - SKEW), NotOnOrAfter=until)
    add(add(conditions, ASSERTION, "AudienceRestriction"), ASSERTION, "Audience").text = provider.entity_id
    statement = add(
        element, ASSERTION, "AuthnStatement", AuthnInstant=format_instant(assertion.authenticated_at), SessionIndex=assertion.session_index
    )
    add(add(statement, ASSERTION, "AuthnContext"), ASSERTION, "AuthnContextClassRef").text = assertion.context_class
    if assertion.attributes:
        attributes = add(element, ASSERTION, "AttributeStatement")
        for each in assertion.attributes:
            attribute = add(attributes, ASSERTION, "Attribute", Name=each.name, NameFormat=each.name_format or _name_format(each.name))
            for value in each.values:
                add(attribute, ASSERTION, "AttributeValue").text = value
    return element


def _name_format(name: str) -> str:
    # Names in the basic format have no spaces (SAML core section 8.2.3).
    return UNSPECIFIED_NAME if any(letter.isspace() for letter in name) else BASIC_NAME


def logout_request(
    base_url: str,
    provider: configuration.SamlIdentityProvider,
    request_id: str,
    name_id: messages.NameId,
    session_index: str,
    now: datetime,
) -> str:
    """Return the service's SLO URL with a LogoutRequest."""
    issuer = configuration.endpoint_url(base_url, provider.service)
    root = etree.Element(f"{{{PROTOCOL}}}LogoutRequest", nsmap={"samlp": PROTOCOL, "saml": ASSERTION})
    add_header(root, request_id, now, issuer, provider.slo_url)
    root.set("NotOnOrAfter", format_instant(now + ASSERTION_TTL))
    _add_name_id(root, issuer, provider, name_id)
    add(root, PROTOCOL, "SessionIndex").text = session_index
    return _signed_url(provider, provider.slo_url, "SAMLRequest", root, None)


def logout_response(
    base_url: str,
    provider: configuration.SamlIdentityProvider,
    in_response_to: str,
    status: messages.SamlStatus | None,
    relay_state: str | None,
    now: datetime,
) -> str:
    """Return the service's URL for logout responses with a LogoutResponse."""
    address = provider.slo_response_url or provider.slo_url
    root = etree.Element(f"{{{PROTOCOL}}}LogoutResponse", nsmap={"samlp": PROTOCOL, "saml": ASSERTION})
    add_header(root, messages.new_message_id(), now, configuration.endpoint_url(base_url, provider.service), address)
    root.set("InResponseTo", in_response_to)
    add_status(root, status)
    return _signed_url(provider, address, "SAMLResponse", root, relay_state)


def add_keys(role: Any, use: str, certificates: Sequence[configuration.SamlCertificate]) -> None:
    """Add a KeyDescriptor per certificate to a role in our metadata."""
    for certificate in certificates:
        data = add(add(add(role, METADATA, "KeyDescriptor", use=use), DSIG, "KeyInfo"), DSIG, "X509Data")
        add(data, DSIG, "X509Certificate").text = signatures.base64_of(certificate.certificate)


def add_header(element: Any, id_: str, now: datetime, issuer: str, destination: str | None) -> None:
    element.set("ID", id_)
    element.set("Version", "2.0")
    element.set("IssueInstant", format_instant(now))
    if destination is not None:
        element.set("Destination", destination)
    add(element, ASSERTION, "Issuer").text = issuer


def _add_name_id(parent: Any, issuer: str, provider: configuration.SamlIdentityProvider, name_id: messages.NameId) -> None:
    element = add(parent, ASSERTION, "NameID", Format=name_id.format.value)
    if name_id.format in (
        configuration.NameIdFormat.PERSISTENT,
        configuration.NameIdFormat.TRANSIENT,
    ):  # SAML core sections 8.3.7 and 8.3.8
        element.set("NameQualifier", issuer)
        element.set("SPNameQualifier", provider.entity_id)
    element.text = name_id.value


def add_status(root: Any, status: messages.SamlStatus | None) -> None:
    # PartialLogout is a second-level code below Success (SAML core section 3.7.3.2).
    match status:
        case None | messages.SamlStatus.PARTIAL_LOGOUT:
            top_level = SUCCESS
        case messages.SamlStatus.NO_PASSIVE | messages.SamlStatus.NO_AUTHN_CONTEXT:
            top_level = RESPONDER
        case messages.SamlStatus.UNKNOWN_PRINCIPAL | messages.SamlStatus.INVALID_NAME_ID_POLICY:
            top_level = REQUESTER
    code = add(add(root, PROTOCOL, "Status"), PROTOCOL, "StatusCode", Value=top_level)
    if status is not None:
        add(code, PROTOCOL, "StatusCode", Value=status.value)


def add(parent: Any, namespace: str, name: str, **attributes: str) -> Any:
    return etree.SubElement(parent, f"{{{namespace}}}{name}", attributes)


def format_instant(time: datetime) -> str:
    return f"{time.astimezone(UTC):%Y-%m-%dT%H:%M:%S}.{time.microsecond // 1000:03}Z"


def serialize(root: Any, *, declaration: bool = False) -> bytes:
    document: bytes = etree.tostring(root, encoding="UTF-8", xml_declaration=declaration)
    return document


def _signed_url(
    provider: configuration.SamlIdentityProvider, address: str | None, parameter: str, root: Any, relay_state: str | None
) -> str:
    """Return this service address with this message."""
    fields = {parameter: messages.encode_redirect(serialize(root))} | ({} if relay_state is None else {"RelayState": relay_state})
    assert address is not None, "services without an SLO URL get no messages"
    separator = "&" if urlsplit(address).query else "?"
    return f"{address}{separator}{signatures.sign_query(fields, provider.certificate)}"
