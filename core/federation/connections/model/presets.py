"""The products that a connection can be set up for: their values, their mapping, and the steps on their side.

Pages and documentation both read this table.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

from core.federation.connections.model import settings
from core.federation.saml.model.configuration import NameIdFormat
from core.kernel import connections
from core.kernel.errors import Invalid

_CLAIMS: Final = "http://schemas.xmlsoap.org/ws/2005/05/identity/claims/"
_MICROSOFT: Final = "http://schemas.microsoft.com/"


PLAIN: Final = settings.ClaimMapping()
# The authorization parameter that names the user's domain, for products with their own name for it.
DOMAIN_PARAMETERS: Final[Mapping[str | None, str]] = MappingProxyType({"google-workspace": "hd"})


@dataclass(frozen=True, slots=True, kw_only=True)
class PresetProtocol:
    """A product with one protocol. `identifier` shows what its issuer or entity id looks like."""

    identifier: str
    steps: tuple[str, ...]  # on the side of the product, in the imperative
    mapping: settings.ClaimMapping = PLAIN
    scopes: tuple[str, ...] = ("email", "profile")  # with OpenID Connect
    sso_url: str = ""  # with SAML
    name_id_format: NameIdFormat = NameIdFormat.PERSISTENT
    subject: str | None = None  # the attribute by which users are known; None: the NameID


@dataclass(frozen=True, slots=True, kw_only=True)
class Preset:
    """A product."""

    name: str
    protocols: Mapping[connections.ConnectionProtocol, PresetProtocol]


class PresetUnknown(Invalid):
    """There is no such preset."""

    def __init__(self) -> None:
        super().__init__(f"There is no such preset. Choose one of {', '.join(PRESETS)}, or leave it out.")


def default_mapping(preset: str | None, protocol: connections.ConnectionProtocol) -> settings.ClaimMapping:
    """Return the mapping of a new connection."""
    if preset == connections.TEST_PROVIDER:
        return _GROUPS
    return PLAIN if preset is None else PRESETS[preset].protocols[protocol].mapping


def first_settings(preset: str | None, protocol: connections.ConnectionProtocol) -> settings.OidcSettings | settings.SamlSettings:
    """Return the settings of a new connection, with the values of its preset that an organization need not know."""
    product = PRESETS.get(preset or "")
    values = None if product is None else product.protocols[protocol]
    if protocol is connections.ConnectionProtocol.OIDC:
        return settings.OidcSettings() if values is None else settings.OidcSettings(scopes=values.scopes)
    return (
        settings.SamlSettings() if values is None else settings.SamlSettings(name_id_format=values.name_id_format, subject=values.subject)
    )


def _preset(name: str, *, oidc: PresetProtocol, saml: PresetProtocol) -> Preset:
    return Preset(
        name=name, protocols=MappingProxyType({connections.ConnectionProtocol.OIDC: oidc, connections.ConnectionProtocol.SAML: saml})
    )


_OWN_NAMES: Final = settings.ClaimMapping(name=None, given_name="firstName", family_name="lastName", groups="groups")
_GROUPS: Final = settings.ClaimMapping(groups="groups")
_XML_NAMES: Final = settings.ClaimMapping(
    email=f"{_CLAIMS}emailaddress", name=None, given_name=f"{_CLAIMS}givenname", family_name=f"{_CLAIMS}surname"
)

PRESETS: Final[Mapping[str, Preset]] = MappingProxyType(
    {
        "okta": _preset(
            "Okta",
            oidc=PresetProtocol(
                identifier="https://acme.okta.com",
                scopes=("email", "profile", "groups"),
                mapping=_GROUPS,
                steps=(
                    "In the Admin Console, open Applications, and create an app integration: OIDC, Web Application.",
                    "Enter the redirect URI of this connection as a sign-in redirect URI.",
                    "Assign the people or groups who may sign in.",
                    "On the Sign On tab, add the claim groups with a filter for the groups that you want to send.",
                    "Copy the client id and the client secret. The issuer is the address of your Okta organization.",
                ),
            ),
            saml=PresetProtocol(
                identifier="http://www.okta.com/exk1a2b3c4",
                sso_url="https://acme.okta.com/app/acme_gatehouse/exk1a2b3c4/sso/saml",
                subject="id",
                mapping=_OWN_NAMES,
                steps=(
                    "In the Admin Console, open Applications, and create an app integration: SAML 2.0.",
                    "Enter the ACS URL of this connection as single sign-on URL, and its entity ID as audience URI.",
                    "Add the attribute statements id = user.id, email = user.email, firstName = user.firstName and "
                    "lastName = user.lastName.",
                    "Add the group attribute statement groups with a filter for the groups that you want to send.",
                    "Assign the people or groups who may sign in.",
                    "On the Sign On tab, copy the issuer, the sign-on URL and the signing certificate.",
                ),
            ),
        ),
        "entra-id": _preset(
            "Microsoft Entra ID",
            oidc=PresetProtocol(
                identifier="https://login.microsoftonline.com/11111111-2222-3333-4444-555555555555/v2.0",
                mapping=_GROUPS,
                steps=(
                    "In the Entra admin center, open App registrations, and register an app for this organizational directory only.",
                    "Enter the redirect URI of this connection with the platform Web.",
                    "Under Certificates & secrets, create a client secret, and copy its value.",
                    "Under Token configuration, add the optional claims email and auth_time, and a groups claim.",
                    "Copy the application id, which is the client id. The issuer has the id of your tenant.",
                ),
            ),
            saml=PresetProtocol(
                identifier="https://sts.windows.net/11111111-2222-3333-4444-555555555555/",
                sso_url="https://login.microsoftonline.com/11111111-2222-3333-4444-555555555555/saml2",
                subject=f"{_MICROSOFT}identity/claims/objectidentifier",
                mapping=settings.ClaimMapping(
                    email=f"{_CLAIMS}emailaddress",
                    name=f"{_MICROSOFT}identity/claims/displayname",
                    given_name=f"{_CLAIMS}givenname",
                    family_name=f"{_CLAIMS}surname",
                    groups=f"{_MICROSOFT}ws/2008/06/identity/claims/groups",
                ),
                steps=(
                    "In the Entra admin center, open Enterprise applications, and create your own application.",
                    "Under Single sign-on, choose SAML, and enter the entity ID and the ACS URL of this connection.",
                    "Under Attributes & Claims, add a group claim with the groups assigned to the application.",
                    "Assign the people or groups who may sign in.",
                    "Copy the Microsoft Entra identifier, the login URL and the certificate (Base64).",
                ),
            ),
        ),
        "google-workspace": _preset(
            "Google Workspace",
            oidc=PresetProtocol(
                identifier="https://accounts.google.com",
                steps=(
                    "In the Google Cloud console, create a project in your organization.",
                    "Set the audience of the OAuth consent screen to Internal. Otherwise, every Google account can sign in there.",
                    "Create an OAuth client of the type Web application, with the redirect URI of this connection.",
                    "Copy the client id and the client secret.",
                ),
            ),
            saml=PresetProtocol(
                identifier="https://accounts.google.com/o/saml2?idpid=C01abcdef",
                sso_url="https://accounts.google.com/o/saml2/idp?idpid=C01abcdef",
                name_id_format=NameIdFormat.EMAIL,
                mapping=_OWN_NAMES,
                steps=(
                    "In the Admin console, open Apps, Web and mobile apps, and add a custom SAML app.",
                    "Copy the SSO URL, the entity ID and the certificate.",
                    "Enter the ACS URL and the entity ID of this connection. Choose the primary email as NameID, with the format EMAIL.",
                    "Map Primary email to email, First name to firstName and Last name to lastName, and your groups to groups.",
                    "Turn the app on for the people who may sign in.",
                ),
            ),
        ),
        "onelogin": _preset(
            "OneLogin",
            oidc=PresetProtocol(
                identifier="https://acme.onelogin.com/oidc/2",
                scopes=("email", "profile", "groups"),
                mapping=_GROUPS,
                steps=(
                    "In the administration, add the application OpenId Connect (OIDC).",
                    "Enter the redirect URI of this connection.",
                    "On the SSO tab, choose the token endpoint method Basic, and copy the client id, the client secret and the issuer.",
                    "Give the application to the roles that may sign in.",
                ),
            ),
            saml=PresetProtocol(
                identifier="https://app.onelogin.com/saml/metadata/11111111-2222-3333-4444-555555555555",
                sso_url="https://acme.onelogin.com/trust/saml2/http-redirect/sso/11111111-2222-3333-4444-555555555555",
                subject="id",
                mapping=_OWN_NAMES,
                steps=(
                    "In the administration, add the application SAML Custom Connector (Advanced).",
                    "Enter the entity ID of this connection as audience, and its ACS URL as recipient and as ACS URL.",
                    "Add the parameters id = OneLogin ID, email = Email, firstName = First Name, lastName = Last Name and "
                    "groups = MemberOf, each included in the assertion.",
                    "On the SSO tab, copy the issuer URL, the SAML 2.0 endpoint and the certificate.",
                    "Give the application to the roles that may sign in.",
                ),
            ),
        ),
        "ping": _preset(
            "PingOne",
            oidc=PresetProtocol(
                identifier="https://auth.pingone.eu/11111111-2222-3333-4444-555555555555/as",
                mapping=_GROUPS,
                steps=(
                    "In the environment, add an application of the type OIDC Web App.",
                    "Enter the redirect URI of this connection, and add the scopes email and profile.",
                    "Map the attributes email, given_name = Given Name, family_name = Family Name and groups = Group Names.",
                    "Copy the client id, the client secret and the issuer, and turn the application on.",
                ),
            ),
            saml=PresetProtocol(
                identifier="https://auth.pingone.eu/11111111-2222-3333-4444-555555555555",
                sso_url="https://auth.pingone.eu/11111111-2222-3333-4444-555555555555/saml20/idp/sso",
                mapping=_OWN_NAMES,
                steps=(
                    "In the environment, add an application of the type SAML Application.",
                    "Enter the ACS URL and the entity ID of this connection. Choose the subject NameID format persistent.",
                    "Map saml_subject = User ID, email = Email Address, firstName = Given Name, lastName = Family Name and "
                    "groups = Group Names.",
                    "Copy the issuer ID and the single sign-on service, download the certificate, and turn the application on.",
                ),
            ),
        ),
        "jumpcloud": _preset(
            "JumpCloud",
            oidc=PresetProtocol(
                identifier="https://oauth.id.jumpcloud.com/",
                mapping=_GROUPS,
                steps=(
                    "In the Admin Portal, open SSO Applications, and add a custom application with OIDC.",
                    "Enter the redirect URI of this connection, and choose Client Secret Basic.",
                    "Add the standard scopes email and profile, and the group attribute groups.",
                    "Copy the client id and the client secret, and assign the user groups that may sign in.",
                ),
            ),
            saml=PresetProtocol(
                identifier="https://sso.jumpcloud.com/acme",
                sso_url="https://sso.jumpcloud.com/saml2/acme",
                subject="id",
                mapping=_OWN_NAMES,
                steps=(
                    "In the Admin Portal, open SSO Applications, and add a custom application with SAML.",
                    "Choose an IdP entity ID, and enter the entity ID and the ACS URL of this connection.",
                    "Add the user attributes id = the id of the user, email, firstName and lastName, and the group attribute groups.",
                    "Sign the assertion, copy the IdP URL, and download the certificate.",
                    "Assign the user groups that may sign in.",
                ),
            ),
        ),
        "keycloak": _preset(
            "Keycloak",
            oidc=PresetProtocol(
                identifier="https://keycloak.acme.com/realms/acme",
                mapping=_GROUPS,
                steps=(
                    "In your realm, create a client of the type OpenID Connect, with client authentication and the standard flow.",
                    "Enter the redirect URI of this connection as a valid redirect URI.",
                    "In the dedicated client scope, add the mapper Group Membership with the claim name groups, without the full path.",
                    "On the Credentials tab, copy the client secret.",
                ),
            ),
            saml=PresetProtocol(
                identifier="https://keycloak.acme.com/realms/acme",
                sso_url="https://keycloak.acme.com/realms/acme/protocol/saml",
                mapping=_OWN_NAMES,
                steps=(
                    "In your realm, create a client of the type SAML. Its client id is the entity ID of this connection.",
                    "Enter the ACS URL of this connection as a valid redirect URI, and as the assertion consumer service POST binding URL.",
                    "Choose the NameID format persistent, and force it. Sign documents and assertions with RSA_SHA256.",
                    "In the dedicated client scope, add mappers for email, firstName and lastName, and a group list with the name groups.",
                    "Copy the certificate of the realm under Realm settings, Keys.",
                ),
            ),
        ),
        "adfs": _preset(
            "AD FS",
            oidc=PresetProtocol(
                identifier="https://adfs.acme.com/adfs",
                scopes=("email", "profile", "allatclaims"),
                mapping=settings.ClaimMapping(name="unique_name", groups="group"),
                steps=(
                    "In AD FS Management, add an application group of the type Server application accessing a web API.",
                    "Enter the redirect URI of this connection, and copy the client identifier.",
                    "Generate a shared secret, and copy it.",
                    "Enter the client identifier as the identifier of the web API.",
                    "Allow the scopes openid, email, profile and allatclaims.",
                    "Issue the claims email, given_name, family_name and group by issuance transform rules.",
                ),
            ),
            saml=PresetProtocol(
                identifier="http://adfs.acme.com/adfs/services/trust",
                sso_url="https://adfs.acme.com/adfs/ls/",
                mapping=settings.ClaimMapping(
                    email=_XML_NAMES.email,
                    name=None,
                    given_name=_XML_NAMES.given_name,
                    family_name=_XML_NAMES.family_name,
                    groups="http://schemas.xmlsoap.org/claims/Group",
                ),
                steps=(
                    "In AD FS Management, add a relying party trust, claims aware, with data that you enter manually.",
                    "Enter the ACS URL of this connection as service URL for SAML 2.0 WebSSO, and its entity ID as identifier.",
                    "Send the LDAP attributes E-Mail-Addresses, Given-Name, Surname and Token-Groups as the claims of these names.",
                    "Transform the objectGUID of the user to a NameID with the format persistent.",
                    "Export the token-signing certificate under Service, Certificates.",
                ),
            ),
        ),
        "authentik": _preset(
            "authentik",
            oidc=PresetProtocol(
                identifier="https://authentik.acme.com/application/o/gatehouse/",
                mapping=_GROUPS,
                steps=(
                    "Create an application with a provider of the type OAuth2/OpenID.",
                    "Enter the redirect URI of this connection, strict, and choose the client type Confidential.",
                    "Choose a signing key, so that ID tokens are signed with RS256.",
                    "Copy the client id, the client secret and the OpenID issuer.",
                ),
            ),
            saml=PresetProtocol(
                identifier="https://authentik.acme.com/",
                sso_url="https://authentik.acme.com/application/saml/gatehouse/sso/binding/redirect/",
                subject="http://schemas.goauthentik.io/2021/02/saml/uid",
                mapping=settings.ClaimMapping(
                    email=f"{_CLAIMS}emailaddress",
                    name=f"{_CLAIMS}name",
                    given_name=None,
                    family_name=None,
                    groups="http://schemas.xmlsoap.org/claims/Group",
                ),
                steps=(
                    "Create an application with a provider of the type SAML.",
                    "Enter the ACS URL of this connection, its entity ID as audience, and the service provider binding Post.",
                    "Choose a signing certificate, and sign the assertions.",
                    "Copy the issuer and the SSO URL (Redirect), and download the signing certificate.",
                ),
            ),
        ),
    }
)
