"""What services and their identity provider say to each other (SAML core, bindings and profiles): the values, how they are packed, and what
of a request is believed (security.md X-1, X-3, X-10)."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from core.federation.saml.configuration_rules import NameIdFormat

if TYPE_CHECKING:
    from datetime import datetime

    from core.federation.saml.configuration_rules import IdentityProvider
from core.federation.saml.messages_rules import (
    FRESH,
    HTTP_POST,
    LONGEST_NAME,
    AcsUrlUnknown,
    AuthnRequest,
    BindingUnsupported,
    IssuerUnknown,
    MessageElsewhere,
    MessageInvalid,
    MessageStale,
    Named,
    NameId,
    Said,
    Status,
    context_class,
)

_ID: Final = re.compile(r"[^\W\d][\w.-]{0,255}")  # an NCName, as far as anybody makes them


def check_said(message: Said, provider: IdentityProvider, endpoint: str, now: datetime) -> None:
    """Whether the registered service says this here and now. Raises MessageInvalid, IssuerUnknown, MessageElsewhere, MessageStale."""
    if not _ID.fullmatch(message.id):
        raise MessageInvalid
    if message.issuer != provider.entity_id:
        raise IssuerUnknown
    if message.destination is not None and message.destination != endpoint:
        raise MessageElsewhere
    if abs(message.issue_instant - now) > FRESH:
        raise MessageStale


def check_asked(request: AuthnRequest, provider: IdentityProvider, endpoint: str, now: datetime) -> None:
    """Whether this request is answered (security.md X-3). Raises AcsUrlUnknown, BindingUnsupported, and what `check_said` raises."""
    check_said(request, provider, endpoint, now)
    if request.acs_url is not None and request.acs_url != provider.acs_url:
        raise AcsUrlUnknown
    if request.binding is not None and request.binding != HTTP_POST:
        raise BindingUnsupported


# What a request may choose


def status_of(request: AuthnRequest, provider: IdentityProvider, issuer: str) -> Status | None:
    """Why this request gets no assertion, whoever is signed in; None where it may get one. `issuer` is what we call ourselves there.

    Names are of the format that was set up, so any other that is asked for is an error, and so are names that are for another service or
    encrypted (SAML core, section 3.4.1.1).
    """
    policy = request.policy
    if policy is not None:
        if (policy.format or NameIdFormat.UNSPECIFIED) not in (NameIdFormat.UNSPECIFIED, provider.name_id_format):
            return Status.INVALID_NAME_ID_POLICY
        if (policy.sp_name_qualifier or provider.entity_id) != provider.entity_id:
            return Status.INVALID_NAME_ID_POLICY
    if request.subject is not None and understood(request.subject, provider, issuer) is None:
        return Status.UNKNOWN_PRINCIPAL
    if request.context is not None and context_class(request.context) is None:
        return Status.NO_AUTHN_CONTEXT
    return None


def understood(named: Named, provider: IdentityProvider, issuer: str) -> NameId | None:
    """Whom a service names; None if that can be nobody whom it knows from us."""
    format_ = next((one for one in NameIdFormat if one == (named.format or NameIdFormat.UNSPECIFIED)), None)
    if format_ is None or not 0 < len(named.value) <= LONGEST_NAME:
        return None
    if (named.name_qualifier or issuer) != issuer or (named.sp_name_qualifier or provider.entity_id) != provider.entity_id:
        return None
    return NameId(named.value, format_)
