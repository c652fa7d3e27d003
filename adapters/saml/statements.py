"""The rules about an assertion's content for a sign-in, and its identity.

Sources: SAML core section 2; SAML profiles section 4.1.4.2; security X-15.
"""

from collections.abc import Iterator
from datetime import datetime
from typing import Any, Final, NoReturn

from adapters.saml import xml
from adapters.saml.xml import ASSERTION
from core.federation.connections.model import saml_responses
from core.federation.connections.model.answers import to_seconds_off
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


def read_identity(
    assertion: Any, partner: saml_responses.SamlPartner, now: datetime, expected: str | None, certificate: str
) -> saml_responses.AssertedIdentity:
    """Check a verified assertion for this partner at this time, and return its identity. Raises: SamlResponseRefused."""
    refuse_unless(assertion.get("Version") == "2.0" and bool(assertion.get("ID")), saml_responses.SamlFault.MALFORMED)
    check_issue_instant(assertion, now)
    check_issuer(assertion, partner)
    ends = [_check_conditions(assertion, partner, now)]
    subject = find_only(assertion, _SUBJECT)
    ends.append(_check_confirmations(subject, partner, now, expected))
    statement, authenticated_at = _newest_statement(assertion, partner, now)
    session_ends_at = _instant(statement, "SessionNotOnOrAfter")
    if session_ends_at is not None and session_ends_at <= now:
        refuse_time(session_ends_at, now)
    context = statement.find(_CONTEXT_CLASS)
    return saml_responses.AssertedIdentity(
        assertion_id=assertion.get("ID"),
        issuer=partner.entity_id,
        name_id=_name_id(subject),
        attributes=_attributes(assertion),
        in_response_to=expected,
        authenticated_at=authenticated_at,
        context_class=None if context is None else _text(context, saml_responses.SamlFault.AUTHN_STATEMENT),
        session_index=statement.get("SessionIndex"),
        session_ends_at=session_ends_at,
        valid_until=min(end for end in ends if end is not None),
        certificate=certificate,
    )


def check_issuer(element: Any, partner: saml_responses.SamlPartner) -> None:
    """Check a Response's or an assertion's Issuer. Raises: SamlResponseRefused."""
    refuse_unless(
        _text(find_only(element, _ISSUER, saml_responses.SamlFault.ISSUER), saml_responses.SamlFault.ISSUER) == partner.entity_id,
        saml_responses.SamlFault.ISSUER,
    )


def check_issue_instant(element: Any, now: datetime) -> None:
    """Check that a Response or an assertion was issued, and not far in the future.

    The validity says whether the Response or assertion is too old.
    """
    issued_at = _instant(element, "IssueInstant")
    if issued_at is None or issued_at > now + saml_responses.MAX_AHEAD:
        refuse_time(issued_at, now)


def _check_conditions(assertion: Any, partner: saml_responses.SamlPartner, now: datetime) -> datetime | None:
    """Check that all conditions hold. Return when the conditions end, or None."""
    conditions = find_only(assertion, _CONDITIONS, saml_responses.SamlFault.AUDIENCE)
    # An assertion with an unknown condition is not valid (SAML core section 2.5.1.1).
    refuse_unless(all(condition.tag in _KNOWN_CONDITIONS for condition in conditions), saml_responses.SamlFault.CONDITION)
    restrictions = conditions.findall(_AUDIENCE_RESTRICTION)
    audiences = [
        [_text(audience, saml_responses.SamlFault.AUDIENCE) for audience in restriction.findall(_AUDIENCE)] for restriction in restrictions
    ]
    refuse_unless(bool(audiences) and all(partner.audience in each for each in audiences), saml_responses.SamlFault.AUDIENCE)
    begin, end = _instant(conditions, "NotBefore"), _instant(conditions, "NotOnOrAfter")
    if begin is not None and begin > now + partner.clock_skew:
        refuse_time(begin, now)
    if end is not None and end <= now - partner.clock_skew:
        refuse_time(end, now)
    return end


def _check_confirmations(subject: Any, partner: saml_responses.SamlPartner, now: datetime, expected: str | None) -> datetime:
    """Return the end of the first bearer confirmation that fits (SAML profiles section 4.1.4.2)."""
    first: saml_responses.SamlResponseRefused | None = None
    for confirmation in subject.findall(_CONFIRMATION):
        try:
            return _check_confirmation(confirmation, partner, now, expected)
        except saml_responses.SamlResponseRefused as refusal:
            first = first or refusal
    raise first or saml_responses.SamlResponseRefused(saml_responses.SamlFault.RECIPIENT)


def _check_confirmation(confirmation: Any, partner: saml_responses.SamlPartner, now: datetime, expected: str | None) -> datetime:
    refuse_unless(confirmation.get("Method") == xml.BEARER, saml_responses.SamlFault.RECIPIENT)
    data = find_only(confirmation, _CONFIRMATION_DATA, saml_responses.SamlFault.RECIPIENT)
    refuse_unless(data.get("Recipient") == partner.acs_url, saml_responses.SamlFault.RECIPIENT)
    refuse_unless(data.get("InResponseTo") == expected, saml_responses.SamlFault.IN_RESPONSE_TO)
    end = _instant(data, "NotOnOrAfter")
    if end is None or data.get("NotBefore") is not None:
        refuse(saml_responses.SamlFault.TIME)
    if end <= now - partner.clock_skew:
        refuse_time(end, now)
    return end


def _newest_statement(assertion: Any, partner: saml_responses.SamlPartner, now: datetime) -> tuple[Any, datetime]:
    """Return the AuthnStatement with the latest sign-in, and its time."""
    statements = [(_instant(statement, "AuthnInstant"), statement) for statement in assertion.findall(_AUTHN_STATEMENT)]
    newest: tuple[Any, datetime] | None = None
    for time, statement in statements:
        if time is None:
            refuse(saml_responses.SamlFault.AUTHN_STATEMENT)
        if newest is None or time > newest[1]:
            newest = statement, time
    if newest is None:
        refuse(saml_responses.SamlFault.AUTHN_STATEMENT)
    if newest[1] > now + partner.clock_skew:
        refuse_time(newest[1], now)
    return newest


def _name_id(subject: Any) -> saml_responses.AssertedNameId | None:
    refuse_unless(next(subject.iter(*_OTHER_IDS), None) is None, saml_responses.SamlFault.NAME_ID)
    if subject.find(_NAME_ID) is None:
        return None
    element = find_only(subject, _NAME_ID, saml_responses.SamlFault.NAME_ID)
    value = _text(element, saml_responses.SamlFault.NAME_ID)
    refuse_unless(0 < len(value) <= saml_responses.MAX_NAME_ID and is_printable(value), saml_responses.SamlFault.NAME_ID)
    return saml_responses.AssertedNameId(
        value=value,
        format=element.get("Format"),
        name_qualifier=element.get("NameQualifier"),
        sp_name_qualifier=element.get("SPNameQualifier"),
    )


def attribute_names(assertion: Any) -> Iterator[str]:
    """Return a verified assertion's attribute names."""
    return (name for attribute in assertion.iterfind(_ATTRIBUTE) if (name := attribute.get("Name")))


def _attributes(assertion: Any) -> tuple[saml_responses.AssertedAttribute, ...]:
    values: dict[tuple[str, str | None], list[str]] = {}
    for attribute in assertion.findall(_ATTRIBUTE):
        name = attribute.get("Name")
        refuse_unless(bool(name), saml_responses.SamlFault.ATTRIBUTES)
        texts = [_attribute_text(value) for value in attribute.findall(_ATTRIBUTE_VALUE)]
        values.setdefault((name, attribute.get("NameFormat")), []).extend(texts)
    return tuple(
        saml_responses.AssertedAttribute(name=name, name_format=format_, values=tuple(texts)) for (name, format_), texts in values.items()
    )


def _attribute_text(value: Any) -> str:
    """Return a value's text, or the text in its only element, such as the NameID in an eduPersonTargetedID."""
    if len(value) == 0:
        return _text(value, saml_responses.SamlFault.ATTRIBUTES)
    refuse_unless(len(value) == 1 and not f"{value.text or ''}{value[0].tail or ''}".strip(_SPACES), saml_responses.SamlFault.ATTRIBUTES)
    return _text(value[0], saml_responses.SamlFault.ATTRIBUTES)


# Elements


def refuse(fault: saml_responses.SamlFault) -> NoReturn:
    raise saml_responses.SamlResponseRefused(fault)


def refuse_time(time: datetime | None, now: datetime) -> NoReturn:
    """Refuse a missing time, or a time that the clocks' tolerated difference does not explain."""
    off = None if time is None else to_seconds_off((time - now).total_seconds())
    raise saml_responses.SamlResponseRefused(saml_responses.SamlFault.TIME, off)


def refuse_unless(condition: bool, fault: saml_responses.SamlFault) -> None:
    """Check that a condition holds. Raises: SamlResponseRefused."""
    if not condition:
        raise saml_responses.SamlResponseRefused(fault)


def find_only(parent: Any, tag: str, fault: saml_responses.SamlFault = saml_responses.SamlFault.MALFORMED) -> Any:
    """Return the only child with this tag. Raises: SamlResponseRefused if there is no such child, or a second one."""
    elements = parent.findall(tag)
    refuse_unless(len(elements) == 1, fault)
    return elements[0]


def _text(element: Any, fault: saml_responses.SamlFault) -> str:
    """Return the text in an element without child elements."""
    refuse_unless(len(element) == 0, fault)
    return str(element.text or "").strip(_SPACES)


def _instant(element: Any, name: str) -> datetime | None:
    """Return the time in an attribute (UTC), or None without the attribute."""
    text = element.get(name)
    try:
        return None if text is None else xml.parse_instant(text)
    except SamlMessageInvalid:
        refuse(saml_responses.SamlFault.TIME)
