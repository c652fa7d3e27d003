"""The rules about an assertion's content for a sign-in, and its identity.

Sources: SAML core section 2; SAML profiles section 4.1.4.2; security X-15.
"""

from collections.abc import Iterator
from datetime import datetime
from typing import Any, Final, NoReturn

from adapters.saml.xml import ASSERTION, BEARER, parse_instant
from core.federation.connections.model.saml_responses import (
    CLOCK_SKEW,
    MAX_AHEAD,
    MAX_NAME_ID,
    AssertedAttribute,
    AssertedIdentity,
    AssertedNameId,
    SamlFault,
    SamlPartner,
    SamlResponseRefused,
)
from core.federation.saml.model.messages import SamlMessageInvalid
from core.kernel.values import is_printable

_ISSUER: Final = f"{{{ASSERTION}}}Issuer"
_SUBJECT: Final = f"{{{ASSERTION}}}Subject"
_NAME_ID: Final = f"{{{ASSERTION}}}NameID"
_OTHER_IDS: Final = (f"{{{ASSERTION}}}BaseID", f"{{{ASSERTION}}}EncryptedID")
_CONFIRMATION: Final = f"{{{ASSERTION}}}SubjectConfirmation"
_CONFIRMATION_DATA: Final = f"{{{ASSERTION}}}SubjectConfirmationData"
_CONDITIONS: Final = f"{{{ASSERTION}}}Conditions"
_AUDIENCE_RESTRICTION: Final = f"{{{ASSERTION}}}AudienceRestriction"
_AUDIENCE: Final = f"{{{ASSERTION}}}Audience"
_KNOWN_CONDITIONS: Final = (_AUDIENCE_RESTRICTION, f"{{{ASSERTION}}}OneTimeUse", f"{{{ASSERTION}}}ProxyRestriction")
_AUTHN_STATEMENT: Final = f"{{{ASSERTION}}}AuthnStatement"
_CONTEXT_CLASS: Final = f"{{{ASSERTION}}}AuthnContext/{{{ASSERTION}}}AuthnContextClassRef"
_ATTRIBUTE: Final = f"{{{ASSERTION}}}AttributeStatement/{{{ASSERTION}}}Attribute"
_ATTRIBUTE_VALUE: Final = f"{{{ASSERTION}}}AttributeValue"
_SPACES: Final = " \t\r\n"


def read_identity(assertion: Any, partner: SamlPartner, now: datetime, expected: str | None, certificate: str) -> AssertedIdentity:
    """Check a verified assertion for this partner at this time, and return its identity. Raises: SamlResponseRefused."""
    refuse_unless(assertion.get("Version") == "2.0" and bool(assertion.get("ID")), SamlFault.MALFORMED)
    check_issue_instant(assertion, now)
    check_issuer(assertion, partner)
    ends = [_check_conditions(assertion, partner, now)]
    subject = find_only(assertion, _SUBJECT)
    ends.append(_check_confirmations(subject, partner, now, expected))
    statement, authenticated_at = _newest_statement(assertion, now)
    session_ends_at = _instant(statement, "SessionNotOnOrAfter")
    refuse_unless(session_ends_at is None or now < session_ends_at, SamlFault.TIME)
    context = statement.find(_CONTEXT_CLASS)
    return AssertedIdentity(
        assertion_id=assertion.get("ID"),
        issuer=partner.entity_id,
        name_id=_name_id(subject),
        attributes=_attributes(assertion),
        in_response_to=expected,
        authenticated_at=authenticated_at,
        context_class=None if context is None else _text(context, SamlFault.AUTHN_STATEMENT),
        session_index=statement.get("SessionIndex"),
        session_ends_at=session_ends_at,
        valid_until=min(end for end in ends if end is not None),
        certificate=certificate,
    )


def check_issuer(element: Any, partner: SamlPartner) -> None:
    """Check a Response's or an assertion's Issuer. Raises: SamlResponseRefused."""
    refuse_unless(_text(find_only(element, _ISSUER, SamlFault.ISSUER), SamlFault.ISSUER) == partner.entity_id, SamlFault.ISSUER)


def check_issue_instant(element: Any, now: datetime) -> None:
    """Check that a Response or an assertion was issued, and not far in the future.

    The validity says whether the Response or assertion is too old.
    """
    issued_at = _instant(element, "IssueInstant")
    refuse_unless(issued_at is not None and issued_at <= now + MAX_AHEAD, SamlFault.TIME)


def _check_conditions(assertion: Any, partner: SamlPartner, now: datetime) -> datetime | None:
    """Check that all conditions hold. Return when the conditions end, or None."""
    conditions = find_only(assertion, _CONDITIONS, SamlFault.AUDIENCE)
    # An assertion with an unknown condition is not valid (SAML core section 2.5.1.1).
    refuse_unless(all(condition.tag in _KNOWN_CONDITIONS for condition in conditions), SamlFault.CONDITION)
    restrictions = conditions.findall(_AUDIENCE_RESTRICTION)
    audiences = [[_text(audience, SamlFault.AUDIENCE) for audience in restriction.findall(_AUDIENCE)] for restriction in restrictions]
    refuse_unless(bool(audiences) and all(partner.audience in each for each in audiences), SamlFault.AUDIENCE)
    begin, end = _instant(conditions, "NotBefore"), _instant(conditions, "NotOnOrAfter")
    refuse_unless(begin is None or begin <= now + CLOCK_SKEW, SamlFault.TIME)
    refuse_unless(end is None or now - CLOCK_SKEW < end, SamlFault.TIME)
    return end


def _check_confirmations(subject: Any, partner: SamlPartner, now: datetime, expected: str | None) -> datetime:
    """Return the end of the first bearer confirmation that fits (SAML profiles section 4.1.4.2)."""
    first: SamlResponseRefused | None = None
    for confirmation in subject.findall(_CONFIRMATION):
        try:
            return _check_confirmation(confirmation, partner, now, expected)
        except SamlResponseRefused as refusal:
            first = first or refusal
    raise first or SamlResponseRefused(SamlFault.RECIPIENT)


def _check_confirmation(confirmation: Any, partner: SamlPartner, now: datetime, expected: str | None) -> datetime:
    refuse_unless(confirmation.get("Method") == BEARER, SamlFault.RECIPIENT)
    data = find_only(confirmation, _CONFIRMATION_DATA, SamlFault.RECIPIENT)
    refuse_unless(data.get("Recipient") == partner.acs_url, SamlFault.RECIPIENT)
    refuse_unless(data.get("InResponseTo") == expected, SamlFault.IN_RESPONSE_TO)
    end = _instant(data, "NotOnOrAfter")
    if end is None or now - CLOCK_SKEW >= end or data.get("NotBefore") is not None:
        refuse(SamlFault.TIME)
    return end


def _newest_statement(assertion: Any, now: datetime) -> tuple[Any, datetime]:
    """Return the AuthnStatement with the latest sign-in, and its time."""
    statements = [(_instant(statement, "AuthnInstant"), statement) for statement in assertion.findall(_AUTHN_STATEMENT)]
    newest: tuple[Any, datetime] | None = None
    for time, statement in statements:
        if time is None:
            refuse(SamlFault.AUTHN_STATEMENT)
        if newest is None or time > newest[1]:
            newest = statement, time
    if newest is None:
        refuse(SamlFault.AUTHN_STATEMENT)
    refuse_unless(newest[1] <= now + CLOCK_SKEW, SamlFault.TIME)
    return newest


def _name_id(subject: Any) -> AssertedNameId | None:
    refuse_unless(next(subject.iter(*_OTHER_IDS), None) is None, SamlFault.NAME_ID)
    if subject.find(_NAME_ID) is None:
        return None
    element = find_only(subject, _NAME_ID, SamlFault.NAME_ID)
    value = _text(element, SamlFault.NAME_ID)
    refuse_unless(0 < len(value) <= MAX_NAME_ID and is_printable(value), SamlFault.NAME_ID)
    return AssertedNameId(
        value=value,
        format=element.get("Format"),
        name_qualifier=element.get("NameQualifier"),
        sp_name_qualifier=element.get("SPNameQualifier"),
    )


def attribute_names(assertion: Any) -> Iterator[str]:
    """Return a verified assertion's attribute names."""
    return (name for attribute in assertion.iterfind(_ATTRIBUTE) if (name := attribute.get("Name")))


def _attributes(assertion: Any) -> tuple[AssertedAttribute, ...]:
    values: dict[tuple[str, str | None], list[str]] = {}
    for attribute in assertion.findall(_ATTRIBUTE):
        name = attribute.get("Name")
        refuse_unless(bool(name), SamlFault.ATTRIBUTES)
        texts = [_attribute_text(value) for value in attribute.findall(_ATTRIBUTE_VALUE)]
        values.setdefault((name, attribute.get("NameFormat")), []).extend(texts)
    return tuple(AssertedAttribute(name=name, name_format=format_, values=tuple(texts)) for (name, format_), texts in values.items())


def _attribute_text(value: Any) -> str:
    """Return a value's text, or the text in its only element, such as the NameID in an eduPersonTargetedID."""
    if len(value) == 0:
        return _text(value, SamlFault.ATTRIBUTES)
    refuse_unless(len(value) == 1 and not f"{value.text or ''}{value[0].tail or ''}".strip(_SPACES), SamlFault.ATTRIBUTES)
    return _text(value[0], SamlFault.ATTRIBUTES)


# Elements


def refuse(fault: SamlFault) -> NoReturn:
    raise SamlResponseRefused(fault)


def refuse_unless(condition: bool, fault: SamlFault) -> None:
    """Check that a condition holds. Raises: SamlResponseRefused."""
    if not condition:
        raise SamlResponseRefused(fault)


def find_only(parent: Any, tag: str, fault: SamlFault = SamlFault.MALFORMED) -> Any:
    """Return the only child with this tag. Raises: SamlResponseRefused if there is no such child, or a second one."""
    elements = parent.findall(tag)
    refuse_unless(len(elements) == 1, fault)
    return elements[0]


def _text(element: Any, fault: SamlFault) -> str:
    """Return the text in an element without child elements."""
    refuse_unless(len(element) == 0, fault)
    return str(element.text or "").strip(_SPACES)


def _instant(element: Any, name: str) -> datetime | None:
    """Return the time in an attribute (UTC), or None without the attribute."""
    text = element.get(name)
    try:
        return None if text is None else parse_instant(text)
    except SamlMessageInvalid:
        refuse(SamlFault.TIME)
