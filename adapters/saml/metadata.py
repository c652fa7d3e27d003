"""Reading metadata from service providers and identity providers.

Sources: SAML metadata sections 2.3.2, 2.4.1, 2.4.4 and 2.2.3; security X-2.
"""

from collections.abc import Mapping
from contextlib import suppress
from datetime import datetime
from typing import Any, Final

from adapters.saml import xml
from adapters.saml.parsing import parse
from adapters.saml.signatures import DSIG
from core.federation.connections.model import saml
from core.federation.connections.model.settings import SsoBinding
from core.federation.saml.model import messages, metadata
from core.kernel.errors import Invalid

_DESCRIPTOR: Final = f"{{{xml.METADATA}}}EntityDescriptor"
_DESCRIPTORS: Final = f"{{{xml.METADATA}}}EntitiesDescriptor"
_SERVICE_PROVIDER: Final = f"{{{xml.METADATA}}}SPSSODescriptor"
_IDENTITY_PROVIDER: Final = f"{{{xml.METADATA}}}IDPSSODescriptor"
_ACS: Final = f"{{{xml.METADATA}}}AssertionConsumerService"
_SSO: Final = f"{{{xml.METADATA}}}SingleSignOnService"
_SLO: Final = f"{{{xml.METADATA}}}SingleLogoutService"
_KEY: Final = f"{{{xml.METADATA}}}KeyDescriptor"
_NAME_ID_FORMAT: Final = f"{{{xml.METADATA}}}NameIDFormat"
_CERTIFICATE: Final = f"{{{DSIG}}}X509Certificate"
_LINE: Final = 64  # base64 characters in a PEM line
_TRUE: Final = ("true", "1")
_BINDINGS: Final[Mapping[str, SsoBinding]] = {xml.HTTP_REDIRECT: SsoBinding.REDIRECT, messages.HTTP_POST: SsoBinding.POST}


def read(document: bytes) -> metadata.ServiceProviderMetadata:
    """Parse a single service provider's metadata.

    Raises: MetadataInvalid, NoServiceProvider, SeveralServiceProviders.
    """
    role = _find_role(document, _SERVICE_PROVIDER, metadata.NoServiceProvider, metadata.SeveralServiceProviders)
    return metadata.ServiceProviderMetadata(
        entity_id=role.getparent().get("entityID") or None,
        acs_url=_acs_url(role),
        slo_url=_slo_url(role),
        slo_response_url=_slo_url(role, "ResponseLocation"),
        has_other_slo=any(service.get("Binding") != xml.HTTP_REDIRECT for service in role.findall(_SLO)),
        certificates=_certificates(role),
        name_id_formats=_name_id_formats(role),
        valid_until=_valid_until(role),
    )


def read_identity_provider(document: bytes) -> saml.IdentityProviderMetadata:
    """Parse a single identity provider's metadata.

    Raises: MetadataInvalid, NoIdentityProvider, SeveralIdentityProviders.
    """
    role = _find_role(document, _IDENTITY_PROVIDER, saml.NoIdentityProvider, saml.SeveralIdentityProviders)
    services = [(_BINDINGS.get(service.get("Binding")), _location(service)) for service in role.findall(_SSO)]
    return saml.IdentityProviderMetadata(
        entity_id=role.getparent().get("entityID") or None,
        # Only the first address per binding counts.
        sso_urls={binding: url for binding, url in reversed(services) if binding is not None and url is not None},
        slo_url=_slo_url(role),
        slo_response_url=_slo_url(role, "ResponseLocation"),
        certificates=_certificates(role),
        name_id_formats=_name_id_formats(role),
        valid_until=_valid_until(role),
    )


def _find_role(document: bytes, tag: str, none: type[Invalid], several: type[Invalid]) -> Any:
    """Return the only role with this tag. Raises: MetadataInvalid; `none` or `several` if there is not exactly one role."""
    try:
        root = parse(document)
    except messages.SamlMessageInvalid:
        raise metadata.MetadataInvalid from None
    if root.tag not in (_DESCRIPTOR, _DESCRIPTORS):
        raise metadata.MetadataInvalid
    roles = [role for descriptor in root.iter(_DESCRIPTOR) for role in descriptor.findall(tag)]
    if len(roles) != 1:
        raise several if roles else none
    return roles[0]


def _slo_url(role: Any, attribute: str = "Location") -> str | None:
    services = (service for service in role.findall(_SLO) if service.get("Binding") == xml.HTTP_REDIRECT)
    return next((_location(service, attribute) for service in services), None)


def _certificates(role: Any) -> tuple[str, ...]:
    return tuple(
        _to_pem("".join((element.text or "").split()))
        for key in role.findall(_KEY)
        if key.get("use", "signing") == "signing"
        for element in key.iter(_CERTIFICATE)
    )


def _name_id_formats(role: Any) -> tuple[str, ...]:
    return tuple((element.text or "").strip() for element in role.findall(_NAME_ID_FORMAT))


def _valid_until(role: Any) -> datetime | None:
    """Return the earliest end that the role or an element around it states, or None. A text that is not a time states none."""
    ends = []
    for element in (role, *role.iterancestors()):
        with suppress(messages.SamlMessageInvalid):
            ends.append(xml.parse_instant(element.get("validUntil", "")))
    return min(ends, default=None)


def _acs_url(role: Any) -> str | None:
    """Return the default address for responses with HTTP-POST, the only binding that we send.

    The choice goes in this order: the first with `isDefault="true"`, the first without `isDefault`, the first (SAML
    metadata section 2.2.3).
    """
    services = [service for service in role.findall(_ACS) if service.get("Binding") == messages.HTTP_POST]
    for accepted in (_TRUE, (None,), ("false", "0")):
        for service in services:
            if service.get("isDefault") in accepted:
                return _location(service)
    return None


def _location(service: Any, attribute: str = "Location") -> str | None:
    return (service.get(attribute) or "").strip() or None


def _to_pem(base64: str) -> str:
    lines = [base64[start : start + _LINE] for start in range(0, len(base64), _LINE)]
    return "\n".join(["-----BEGIN CERTIFICATE-----", *lines, "-----END CERTIFICATE-----", ""])
