"""What services and their identity provider say to each other (SAML core, bindings and profiles): the values, how they are packed, and what
of a request is believed (security.md X-1, X-3, X-10)."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from core.federation.saml.configuration_rules import NameIdFormat

if TYPE_CHECKING:
    from datetime import datetime

    from core.federation.saml.configuration_rules import SamlIdentityProvider
from core.federation.saml.messages_rules import (
    MAX_AGE,
    HTTP_POST,
    MAX_NAME_ID_LENGTH,
    AcsUrlMismatch,
    AuthnRequest,
    BindingUnsupported,
    IssuerMismatch,
    DestinationMismatch,
    SamlMessageInvalid,
    SamlMessageExpired,
    ReceivedNameId,
    NameId,
    SamlMessage,
    SamlStatus,
    choose_context_class,
)

_ID: Final = re.compile(r"[^\W\d][\w.-]{0,255}")  # an NCName, as far as anybody makes them


def check_message(message: SamlMessage, provider: SamlIdentityProvider, endpoint: str, now: datetime) -> None:
    """Whether the registered service says this here and now. Raises MessageInvalid, IssuerUnknown, MessageElsewhere, MessageStale."""
    if not _ID.fullmatch(message.id):
        raise SamlMessageInvalid
    if message.issuer != provider.entity_id:
        raise IssuerMismatch
    if message.destination is not None and message.destination != endpoint:
        raise DestinationMismatch
    if abs(message.issue_instant - now) > MAX_AGE:
        raise SamlMessageExpired


def check_authn_request(request: AuthnRequest, provider: SamlIdentityProvider, endpoint: str, now: datetime) -> None:
    """Whether this request is answered (security.md X-3). Raises AcsUrlUnknown, BindingUnsupported, and what `check_said` raises."""
    check_message(request, provider, endpoint, now)
    if request.acs_url is not None and request.acs_url != provider.acs_url:
        raise AcsUrlMismatch
    if request.binding is not None and request.binding != HTTP_POST:
        raise BindingUnsupported


# What a request may choose


def refusal_status(request: AuthnRequest, provider: SamlIdentityProvider, issuer: str) -> SamlStatus | None:
    """Why this request gets no assertion, whoever is signed in; None where it may get one. `issuer` is what we call ourselves there.

    Names are of the format that was set up, so any other that is asked for is an error, and so are names that are for another service or
    encrypted (SAML core, section 3.4.1.1).
    """
    policy = request.policy
    if policy is not None:
        if (policy.format or NameIdFormat.UNSPECIFIED) not in (NameIdFormat.UNSPECIFIED, provider.name_id_format):
            return SamlStatus.INVALID_NAME_ID_POLICY
        if (policy.sp_name_qualifier or provider.entity_id) != provider.entity_id:
            return SamlStatus.INVALID_NAME_ID_POLICY
    if request.subject is not None and resolve_name_id(request.subject, provider, issuer) is None:
        return SamlStatus.UNKNOWN_PRINCIPAL
    if request.context is not None and choose_context_class(request.context) is None:
        return SamlStatus.NO_AUTHN_CONTEXT
    return None


def resolve_name_id(named: ReceivedNameId, provider: SamlIdentityProvider, issuer: str) -> NameId | None:
    """Whom a service names; None if that can be nobody whom it knows from us."""
    format_ = next((one for one in NameIdFormat if one == (named.format or NameIdFormat.UNSPECIFIED)), None)
    if format_ is None or not 0 < len(named.value) <= MAX_NAME_ID_LENGTH:
        return None
    if (named.name_qualifier or issuer) != issuer or (named.sp_name_qualifier or provider.entity_id) != provider.entity_id:
        return None
    return NameId(named.value, format_)
