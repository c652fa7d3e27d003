"""Verifying responses and logout requests from identity providers: sizes, structure, signatures, decryption.

Everything that an identity has is read from a document that was parsed from signed bytes (docs/adr/0045). `statements`
has the rules about an assertion's content.

Sources: SAML profiles section 4.1.4; SAML core section 3.2; security X-12, security X-13, security X-14.

Sources: SAML profiles section 4.4.4.1; SAML bindings sections 3.4.4.1 and 3.5.4; security X-17.
"""

from collections.abc import Sequence
from datetime import datetime
from typing import Any, Final

from adapters.saml import decryption, second_judge, signed_parts, statements, verification, xml
from adapters.saml.parsing import parse
from adapters.saml.sizes import check_size
from adapters.saml.xml import ASSERTION, PROTOCOL
from core.federation.connections.model import saml_responses
from core.federation.connections.model.answers import names_received
from core.federation.saml.model import messages

_RESPONSE: Final = f"{{{PROTOCOL}}}Response"
_ASSERTION: Final = f"{{{ASSERTION}}}Assertion"
_ENCRYPTED: Final = f"{{{ASSERTION}}}EncryptedAssertion"
_ANY_ASSERTION: Final = ("{*}Assertion", "{*}EncryptedAssertion")
_ISSUER: Final = f"{{{ASSERTION}}}Issuer"
_STATUS: Final = f"{{{PROTOCOL}}}Status"
_STATUS_CODE: Final = f"{{{PROTOCOL}}}StatusCode"
_IDS: Final = frozenset(["ID", "Id", "id", "AssertionID"])

# The codes in SAML core section 3.2.2.2, by their last part.
_STATUS_PREFIX: Final = "urn:oasis:names:tc:SAML:2.0:status:"
_STATUSES: Final = frozenset(
    [
        "Requester",
        "Responder",
        "VersionMismatch",
        "AuthnFailed",
        "InvalidAttrNameOrValue",
        "InvalidNameIDPolicy",
        "NoAuthnContext",
        "NoAvailableIDP",
        "NoPassive",
        "NoSupportedIDP",
        "PartialLogout",
        "ProxyCountExceeded",
        "RequestDenied",
        "RequestUnsupported",
        "RequestVersionDeprecated",
        "RequestVersionTooHigh",
        "RequestVersionTooLow",
        "ResourceNotRecognized",
        "TooManyResponses",
        "UnknownAttrProfile",
        "UnknownPrincipal",
        "UnsupportedBinding",
    ]
)


def read(root: Any, partner: saml_responses.SamlPartner, now: datetime, expected: str | None) -> saml_responses.AssertedIdentity:
    """Verify the response with this root, which does not change, and return its identity.

    Raises: SamlResponseRefused, SamlStatusReturned.
    """
    _check_status(root)
    received = _find_assertion(root)
    _check_structure(root, *(() if received.tag == _ENCRYPTED else (received,)))
    # All signatures are verified in the document as it came: the Response's signed bytes lack
    # namespaces that only the PrefixList in the assertion's signature names.
    response = _verify(root, partner)
    covered = None if response is None else _find_assertion(response.root)
    if received.tag == _ENCRYPTED:
        received = covered = _decrypt(received if covered is None else covered, partner, is_signed=response is not None)
    assertion = _verify(received, partner)
    signed = assertion or response
    if signed is None:
        statements.refuse(saml_responses.SamlFault.UNSIGNED)
    verified = covered if assertion is None else assertion.root
    with names_received(statements.attribute_names(verified)):
        _check_response(root if response is None else response.root, partner, now, expected, is_signed=response is not None)
        identity = statements.read_identity(verified, partner, now, expected, signed.certificate)
    second_judge.confirm(response, assertion)
    return identity


def parse_response(document: bytes) -> Any:
    """Return the root of a Response with a limited size, which is not verified. Raises: SamlResponseRefused."""
    statements.refuse_unless(document[:1] == b"<", saml_responses.SamlFault.MALFORMED)
    try:
        root = parse(document)
    except messages.SamlMessageInvalid:
        statements.refuse(saml_responses.SamlFault.MALFORMED)
    check_size(root, has_long_texts=len(document) > saml_responses.MAX_TEXT)
    statements.refuse_unless(root.tag == _RESPONSE and root.get("Version") == "2.0", saml_responses.SamlFault.MALFORMED)
    return root


def _check_status(root: Any) -> None:
    """Raise a failure's status, signed or not: it can only end the sign-in."""
    code = statements.find_only(statements.find_only(root, _STATUS), _STATUS_CODE)
    if code.get("Value") != xml.SUCCESS:
        details = code.findall(_STATUS_CODE)
        raise saml_responses.SamlStatusReturned(_name_of(code), _name_of(details[0]) if details else None)


def _name_of(code: Any) -> str:
    name = code.get("Value", "").removeprefix(_STATUS_PREFIX)
    return name if name in _STATUSES else "Unknown"


def _find_assertion(root: Any) -> Any:
    """Return a Response's only assertion, which is its child, encrypted or not."""
    # No assertion may be inside Extensions, Advice, Object or Subject: there, signature wrapping
    # hides assertions.
    assertions = list(root.iter(*_ANY_ASSERTION))
    is_only = len(assertions) == 1 and assertions[0].getparent() is root and assertions[0].tag in (_ASSERTION, _ENCRYPTED)
    statements.refuse_unless(is_only, saml_responses.SamlFault.ASSERTION_COUNT)
    return assertions[0]


def _check_structure(root: Any, *others: Any) -> None:
    """Check that IDs differ, and that every signature is a direct child of such an element, and its only signature."""
    ids = [value for element in root.iter() for name, value in element.items() if name.rpartition("}")[2] in _IDS]
    statements.refuse_unless(len(ids) == len(set(ids)), saml_responses.SamlFault.DUPLICATE_ID)
    parents = [signature.getparent() for signature in root.iter(signed_parts.SIGNATURE)]
    is_placed = all(parent in (root, *others) for parent in parents) and len(parents) == len(set(parents))
    statements.refuse_unless(is_placed, saml_responses.SamlFault.SIGNATURE_PLACE)


def _verify(element: Any, partner: saml_responses.SamlPartner) -> signed_parts.SignedPart | None:
    """Return an element's signed content, or None without a signature."""
    return None if element.find(signed_parts.SIGNATURE) is None else signed_parts.verify(element, partner.certificates)


def _decrypt(encrypted: Any, partner: saml_responses.SamlPartner, *, is_signed: bool) -> Any:
    """Return the assertion in an EncryptedAssertion. The rules for a plain assertion hold for a decrypted assertion, too."""
    assertion = decryption.decrypt(encrypted, partner.decryption_keys, is_signed=is_signed)
    check_size(assertion)
    statements.refuse_unless(
        assertion.tag == _ASSERTION and [*assertion.iter(*_ANY_ASSERTION)] == [assertion], saml_responses.SamlFault.ASSERTION_COUNT
    )
    _check_structure(assertion)
    return assertion


def _check_response(response: Any, partner: saml_responses.SamlPartner, now: datetime, expected: str | None, *, is_signed: bool) -> None:
    """Check the Response's attributes and Issuer. If the Response is unsigned, these values prove nothing, but must not disagree."""
    if response.find(_ISSUER) is not None:
        statements.check_issuer(response, partner)
    destination = response.get("Destination", None if is_signed else partner.acs_url)
    statements.refuse_unless(destination == partner.acs_url, saml_responses.SamlFault.DESTINATION)
    statements.refuse_unless(response.get("InResponseTo") == expected, saml_responses.SamlFault.IN_RESPONSE_TO)
    statements.check_issue_instant(response, now)


def read_request(document: bytes, signature: messages.QuerySignature | None, certificates: Sequence[str]) -> messages.LogoutRequest:
    """Return a LogoutRequest that is signed in the query, or in the document. Only signed content is read. Raises: SamlResponseRefused."""
    part = None
    try:
        root = parse(document)
        check_size(root)
        if signature is None:
            if root.find(signed_parts.SIGNATURE) is None:
                raise saml_responses.SamlResponseRefused(saml_responses.SamlFault.UNSIGNED)
            part = signed_parts.verify(root, certificates)
            root = part.root
        elif not any(_is_signed(signature, certificate) for certificate in certificates):
            raise saml_responses.SamlResponseRefused(saml_responses.SamlFault.SIGNATURE_WRONG)
        request = xml.read_message(root)
    except messages.SamlMessageInvalid:
        raise saml_responses.SamlResponseRefused(saml_responses.SamlFault.MALFORMED) from None
    if not isinstance(request, messages.LogoutRequest):
        raise saml_responses.SamlResponseRefused(saml_responses.SamlFault.MALFORMED)
    second_judge.confirm(part)
    return request


def _is_signed(signature: messages.QuerySignature, certificate: str) -> bool:
    try:
        verification.verify_query(signature, certificate)
    except messages.LogoutSignatureInvalid:
        return False
    return True
