"""Writing our messages for identity providers: requests, logout responses, and our metadata.

Sources: SAML profiles sections 4.1.4.1 and 4.4.4; SAML bindings sections 3.4 and 3.5; SAML metadata section 2.4.4.
"""

from collections.abc import Mapping
from datetime import datetime
from urllib.parse import quote, urlencode, urlsplit

from lxml import etree

from adapters.saml import signatures, xml
from adapters.saml.signatures import DSIG
from adapters.saml.xml import METADATA, PROTOCOL
from core.federation.connections.model import saml
from core.federation.connections.model.settings import SsoBinding
from core.federation.saml.model import messages
from core.federation.saml.model.configuration import SamlCertificate


def sign_in_request(own: saml.OwnServiceProvider, request: saml.SamlSignInRequest) -> saml.ProviderRedirect:
    """Return the place to which the browser takes an AuthnRequest, which is signed if the connection signs its requests."""
    root = etree.Element(f"{{{PROTOCOL}}}AuthnRequest", nsmap={"samlp": PROTOCOL, "saml": xml.ASSERTION})
    xml.add_header(root, request.id, request.issued_at, own.entity_id, request.destination)
    root.set("AssertionConsumerServiceURL", own.acs_url)
    root.set("ProtocolBinding", messages.HTTP_POST)
    if request.force_authn:
        root.set("ForceAuthn", "true")
    if own.name_id_format is not None:
        xml.add(root, PROTOCOL, "NameIDPolicy", Format=own.name_id_format.value, AllowCreate="true")
    key = own.signing[0] if own.signs_requests else None
    if request.binding is SsoBinding.REDIRECT:
        return saml.ProviderRedirect(
            _with_message(request.destination, {"SAMLRequest": messages.encode_redirect(xml.serialize(root))}, key)
        )
    if key is not None:
        signatures.sign(root, key)
    return saml.ProviderRedirect(request.destination, {"SAMLRequest": messages.encode_post(xml.serialize(root))})


def logout_request(own: saml.OwnServiceProvider, request: saml.SamlLogoutRequest) -> str:
    """Return the URL at the identity provider with a signed LogoutRequest."""
    root = etree.Element(f"{{{PROTOCOL}}}LogoutRequest", nsmap={"samlp": PROTOCOL, "saml": xml.ASSERTION})
    xml.add_header(root, request.id, request.issued_at, own.entity_id, request.destination)
    root.set("NotOnOrAfter", xml.format_instant(request.issued_at + xml.ASSERTION_TTL))
    name_id = request.name_id
    qualifiers = {"NameQualifier": name_id.name_qualifier, "SPNameQualifier": name_id.sp_name_qualifier, "Format": name_id.format}
    element = xml.add(root, xml.ASSERTION, "NameID", **{name: value for name, value in qualifiers.items() if value is not None})
    element.text = name_id.value
    if request.session_index is not None:
        xml.add(root, PROTOCOL, "SessionIndex").text = request.session_index
    return _with_message(request.destination, {"SAMLRequest": messages.encode_redirect(xml.serialize(root))}, own.signing[0])


def logout_response(
    own: saml.OwnServiceProvider, url: str, in_response_to: str, status: messages.SamlStatus | None, relay_state: str | None, now: datetime
) -> str:
    """Return the URL at the identity provider with a signed LogoutResponse to its request."""
    root = etree.Element(f"{{{PROTOCOL}}}LogoutResponse", nsmap={"samlp": PROTOCOL, "saml": xml.ASSERTION})
    xml.add_header(root, messages.new_message_id(), now, own.entity_id, url)
    root.set("InResponseTo", in_response_to)
    xml.add_status(root, status)
    fields = {"SAMLResponse": messages.encode_redirect(xml.serialize(root))} | ({} if relay_state is None else {"RelayState": relay_state})
    return _with_message(url, fields, own.signing[0])


def _with_message(url: str, fields: Mapping[str, str], key: SamlCertificate | None) -> str:
    query = urlencode(fields, quote_via=quote, safe="") if key is None else signatures.sign_query(fields, key)
    return f"{url}{'&' if urlsplit(url).query else '?'}{query}"


def own_metadata(own: saml.OwnServiceProvider) -> bytes:
    """Return an EntityDescriptor that is valid by the schema."""
    root = etree.Element(f"{{{METADATA}}}EntityDescriptor", {"entityID": own.entity_id}, {"md": METADATA, "ds": DSIG})
    role = xml.add(
        root,
        METADATA,
        "SPSSODescriptor",
        AuthnRequestsSigned="true" if own.signs_requests else "false",
        WantAssertionsSigned="true",
        protocolSupportEnumeration=PROTOCOL,
    )
    xml.add_keys(role, "signing", own.signing)
    xml.add_keys(role, "encryption", own.encryption)
    for binding in (xml.HTTP_REDIRECT, messages.HTTP_POST):
        xml.add(role, METADATA, "SingleLogoutService", Binding=binding, Location=own.slo_url)
    if own.name_id_format is not None:
        xml.add(role, METADATA, "NameIDFormat").text = own.name_id_format.value
    xml.add(role, METADATA, "AssertionConsumerService", Binding=messages.HTTP_POST, Location=own.acs_url, index="0", isDefault="true")
    return xml.serialize(root, declaration=True)
