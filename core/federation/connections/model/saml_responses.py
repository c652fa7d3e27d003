"""Responses of SAML identity providers: the verified content, and the faults for which a response is refused.

Sources: SAML core sections 2 and 3.2; SAML profiles section 4.1.4; security X-12.
"""

import base64
import binascii
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from types import MappingProxyType
from typing import Final

from core.federation.connections.model.answers import CLOCK_SKEW, AnswerRefused
from core.kernel.errors import Invalid

MAX_ENCODED_RESPONSE: Final = 200_000  # characters of base64
MAX_ELEMENTS: Final = 5_000
MAX_DEPTH: Final = 64
MAX_ATTRIBUTES: Final = 200
MAX_VALUES: Final = 500  # of all attributes together
MAX_XML_ATTRIBUTES: Final = 64  # of an element
MAX_NAMESPACES: Final = 64  # that one element can see
MAX_NAMESPACE: Final = 256  # characters
MAX_TEXT: Final = 8 * 1024  # characters of a name or value
MAX_NAME_ID: Final = 1024
LOGOUT_SKEW: Final = timedelta(seconds=60)  # between the identity provider's clock and ours, in logout requests
MAX_AHEAD: Final = timedelta(minutes=10)  # how far in the future a response may be issued


class SamlFault(StrEnum):
    """The reason for which a response is refused. The sign-in log and the metric have its value."""

    MALFORMED = "malformed"
    TOO_LARGE = "too_large"
    ASSERTION_COUNT = "assertion_count"
    DUPLICATE_ID = "duplicate_id"
    SIGNATURE_PLACE = "signature_place"
    SIGNATURE_SHAPE = "signature_shape"
    SIGNATURE_ALGORITHM = "signature_algorithm"
    SIGNATURE_WRONG = "signature_wrong"
    SIGNATURE_DISPUTED = "signature_disputed"
    UNSIGNED = "unsigned"
    DECRYPTION = "decryption"
    ISSUER = "issuer"
    DESTINATION = "destination"
    CONDITION = "condition"
    AUDIENCE = "audience"
    TIME = "time"
    RECIPIENT = "recipient"
    IN_RESPONSE_TO = "in_response_to"
    AUTHN_STATEMENT = "authn_statement"
    AUTHN_INSTANT = "authn_instant"
    USED = "used"
    NAME_ID = "name_id"
    ATTRIBUTES = "attributes"


# The sentence for admins about each fault.
FAULTS: Final[Mapping[SamlFault, str]] = MappingProxyType(
    {
        SamlFault.MALFORMED: "The document is not a SAML 2.0 Response. Check that the identity provider uses the HTTP-POST binding.",
        SamlFault.TOO_LARGE: "The response is too large. Send fewer attributes, or only the groups that are assigned to the application.",
        SamlFault.ASSERTION_COUNT: "The response must have exactly one assertion. Turn off additional assertions at the identity provider.",
        SamlFault.DUPLICATE_ID: "Two elements of the response have the same ID. Report this to the maker of the identity provider.",
        SamlFault.SIGNATURE_PLACE: "The response has a signature where none belongs. Sign the response, the assertion, or both.",
        SamlFault.SIGNATURE_SHAPE: (
            "The signature has an unusual form. It must cover the whole response or assertion, with an enveloped signature and exclusive "
            "canonicalization."
        ),
        SamlFault.SIGNATURE_ALGORITHM: (
            "The algorithm of the signature is not accepted. Sign with RSA and SHA-256, SHA-384 or SHA-512, and use such a digest."
        ),
        SamlFault.SIGNATURE_WRONG: (
            "No certificate of the connection verifies the signature. Add the identity provider's current signing certificate."
        ),
        SamlFault.SIGNATURE_DISPUTED: (
            "Our two signature checks disagree. Report this, with the time of the sign-in, to the operator of Gatehouse."
        ),
        SamlFault.UNSIGNED: "The response is not signed. Sign the response or the assertion at the identity provider.",
        SamlFault.DECRYPTION: (
            "The assertion could not be decrypted. Encrypt it with the connection's current certificate, RSA-OAEP and AES-GCM."
        ),
        SamlFault.ISSUER: "The Issuer is not the entity id of the identity provider. Correct the entity id of the connection.",
        SamlFault.DESTINATION: (
            "The Destination is not the connection's ACS URL, or its single logout URL. Correct it at the identity provider."
        ),
        SamlFault.CONDITION: "The assertion has a condition that Gatehouse does not know. Remove it at the identity provider.",
        SamlFault.AUDIENCE: "The audience of the assertion is not the connection's entity id. Correct it at the identity provider.",
        SamlFault.TIME: "The response has expired, or is from the future. Check the clock of the identity provider.",
        SamlFault.RECIPIENT: "The Recipient is not the connection's ACS URL. Correct the ACS URL at the identity provider.",
        SamlFault.IN_RESPONSE_TO: "The response does not belong to this sign-in. Start again at the application.",
        SamlFault.AUTHN_STATEMENT: "The assertion does not say when the user signed in. Send an AuthnStatement.",
        SamlFault.AUTHN_INSTANT: "The identity provider did not ask the user to sign in again. It must obey ForceAuthn.",
        SamlFault.USED: "The assertion was used before. Start again at the application.",
        SamlFault.NAME_ID: "The NameID is missing its text, is too long or is encrypted. Send a plain NameID.",
        SamlFault.ATTRIBUTES: "The value of an attribute is not a text. Send attributes as texts.",
    }
)


class SamlResponseRefused(AnswerRefused):
    """Your organization's identity provider sent an answer that can't be accepted. Try again, or contact your IT department."""

    def __init__(self, fault: SamlFault, seconds_off: int | None = None) -> None:
        super().__init__(
            "Your organization's identity provider sent an answer that can't be accepted. "
            f"Try again, or give your IT department this code: {fault}."
        )
        self.fault = fault
        self.seconds_off = seconds_off


class SamlStatusReturned(Invalid):
    """Your organization's identity provider didn't sign you in. Try again, or contact your IT department."""

    def __init__(self, status: str, detail: str | None) -> None:
        """`status` and `detail` are the top-level and the second-level status code, by their last part. Unknown codes are `Unknown`."""
        super().__init__(
            "Your organization's identity provider didn't sign you in. "
            f"Try again, or give your IT department this code: {detail or status}."
        )
        self.status = status
        self.detail = detail


@dataclass(frozen=True, slots=True, kw_only=True)
class SamlPartner:
    """The facts about a connection that a response must fit. None of them comes from the response.

    The dates of the certificates are not checked: an identity provider that forgot to renew one
    would sign in no user. Admins are warned before a certificate ends.
    """

    entity_id: str  # of the identity provider
    certificates: tuple[str, ...]  # PEM, RSA keys of 2048 to 8192 bits
    audience: str  # our entity id
    acs_url: str
    decryption_keys: tuple[Callable[[], bytes], ...] = ()  # each returns a PEM; the newest first
    clock_skew: timedelta = CLOCK_SKEW


@dataclass(frozen=True, slots=True, kw_only=True)
class AssertedNameId:
    """The NameID of an assertion, with None for omitted parts (SAML core section 2.2.3)."""

    value: str
    format: str | None
    name_qualifier: str | None
    sp_name_qualifier: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class AssertedAttribute:
    """An attribute of an assertion. Attributes with the same name and format are one, with all values."""

    name: str
    name_format: str | None
    values: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class AssertedIdentity:
    """The statement of an identity provider about a user. All of it was signed. Times are UTC."""

    assertion_id: str
    issuer: str
    name_id: AssertedNameId | None
    attributes: tuple[AssertedAttribute, ...]
    in_response_to: str | None
    authenticated_at: datetime
    context_class: str | None
    session_index: str | None
    session_ends_at: datetime | None
    valid_until: datetime  # the assertion must count as used until then, and for MAX_CLOCK_SKEW after it
    certificate: str  # PEM of the certificate that verified it


def decode_response(text: str) -> bytes:
    """Return the document in a form field, which may have line breaks (SAML bindings section 3.5.4).

    Deflated documents are refused, because they can grow.
    """
    if len(text) > MAX_ENCODED_RESPONSE:
        raise SamlResponseRefused(SamlFault.TOO_LARGE)
    try:
        document = base64.b64decode("".join(text.split()), validate=True)
    except (binascii.Error, ValueError):
        raise SamlResponseRefused(SamlFault.MALFORMED) from None
    if document[:1] != b"<":
        raise SamlResponseRefused(SamlFault.MALFORMED)
    return document
