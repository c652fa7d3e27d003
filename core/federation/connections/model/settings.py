"""The settings of a connection, by protocol, and their rules."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from datetime import timedelta
from enum import StrEnum
from typing import Any, Final, Self

from core.federation.connections.model.answers import CLOCK_SKEW, MAX_CLOCK_SKEW
from core.federation.saml.model.configuration import NameIdFormat
from core.kernel import uris
from core.kernel.connections import ConnectionProtocol
from core.kernel.errors import Invalid
from core.kernel.values import is_printable

MAX_TEXT: Final = 1024  # SAML core section 8.3.6 says so for entity ids
MAX_CLAIM_NAME: Final = 256
MAX_SCOPES: Final = 20
MAX_SCOPE: Final = 100
MAX_TARGETS: Final = 20
DEFAULT_SKEW_SECONDS: Final = int(CLOCK_SKEW.total_seconds())
MAX_SKEW_SECONDS: Final = int(MAX_CLOCK_SKEW.total_seconds())
# Attributes that users can change at many identity providers, by their last part without _ and -, and by their OID. A user could
# take another user's value, and with it the account.
CHANGEABLE_NAMES: Final = frozenset(
    {
        *("mail", "email", "emailaddress", "phone", "phonenumber", "telephonenumber", "mobile"),
        *("name", "cn", "displayname", "givenname", "firstname", "sn", "surname", "familyname", "lastname"),
        *("nickname", "preferredusername"),
    }
)
CHANGEABLE_OIDS: Final = frozenset(
    {
        "0.9.2342.19200300.100.1.3",  # mail
        "0.9.2342.19200300.100.1.41",  # mobile
        "1.2.840.113549.1.9.1",  # email address
        "2.16.840.1.113730.3.1.241",  # displayName
        *("2.5.4.3", "2.5.4.4", "2.5.4.20", "2.5.4.42"),  # cn, sn, telephoneNumber, givenName
    }
)
# Entra ID has these in place of a tenant. With them, any company of the world could sign in.
SHARED_TENANTS: Final = frozenset({"common", "organizations", "consumers", "{tenantid}"})


class ConnectionSettingInvalid(Invalid):
    """A setting of the connection is not valid."""

    def __init__(self, setting: str, sentence: str) -> None:
        """`setting` is the name of the field."""
        super().__init__(sentence)
        self.setting = setting


class ProviderAuthentication(StrEnum):
    """How we authenticate at the token endpoint of an identity provider (OpenID Connect Core section 9)."""

    BASIC = "client_secret_basic"
    POST = "client_secret_post"
    PRIVATE_KEY_JWT = "private_key_jwt"


class SsoBinding(StrEnum):
    """How a browser takes our request to a SAML identity provider (SAML bindings sections 3.4 and 3.5)."""

    REDIRECT = "redirect"
    POST = "post"


@dataclass(frozen=True, slots=True, kw_only=True)
class OidcSettings:
    """The settings of an OpenID provider. Texts of a draft can be empty."""

    issuer: str = ""
    client_id: str = ""
    client_authentication: ProviderAuthentication = ProviderAuthentication.BASIC
    scopes: tuple[str, ...] = ("email", "profile")  # besides openid
    targets: tuple[str, ...] = ()  # where a user can continue after a sign-in that the provider initiated
    trusts_email: bool = False  # its addresses count as verified, also without the claim email_verified
    trusts_second_factor: bool = False  # the organization takes its second factor for ours
    clock_skew_seconds: int = DEFAULT_SKEW_SECONDS  # tolerated between its clock and ours at sign-ins

    @property
    def clock_skew(self) -> timedelta:
        return timedelta(seconds=self.clock_skew_seconds)

    @property
    def protocol(self) -> ConnectionProtocol:
        return ConnectionProtocol.OIDC

    @property
    def identity(self) -> tuple[str, ...]:
        """The values by which users are known, which are fixed after the first activation."""
        return (self.issuer,)

    @property
    def initiator(self) -> str:
        """The identity provider that can initiate sign-ins, or an empty text."""
        return self.issuer

    def check(self) -> "OidcSettings":
        """Return the valid settings, with URLs in the stored form. Raises: ConnectionSettingInvalid."""
        # The issuer is compared byte for byte with that of the provider, so its spelling stays.
        _require_url(self.issuer, "issuer", "The issuer")
        if "?" in self.issuer:  # OpenID Connect Core section 2
            _refuse("issuer", "The issuer is not valid: it must not have a query.")
        if not SHARED_TENANTS.isdisjoint(self.issuer.lower().split("/")):  # Entra ID ignores the case
            _refuse("issuer", "The issuer must be that of one tenant. Replace the last part but one by the id of your tenant.")
        _require_text(self.client_id, "client_id", "The client id")
        _check_skew(self.clock_skew_seconds)
        if len(self.scopes) > MAX_SCOPES or len(set(self.scopes)) < len(self.scopes):
            _refuse("scopes", f"Send at most {MAX_SCOPES} scopes, each once.")
        for scope in self.scopes:
            if not 0 < len(scope) <= MAX_SCOPE or not all("!" <= each <= "~" and each not in '"\\' for each in scope):
                _refuse("scopes", "A scope has 1 to 100 ASCII characters, without spaces and quotation marks.")
        return replace(self, targets=_check_targets(self.targets))

    @classmethod
    def read(cls, stored: Mapping[str, Any]) -> "OidcSettings":
        return cls(**_known(cls, stored, client_authentication=ProviderAuthentication, scopes=tuple, targets=tuple))


@dataclass(frozen=True, slots=True, kw_only=True)
class SamlSettings:
    """The settings of a SAML identity provider. Texts of a draft can be empty."""

    entity_id: str = ""
    sso_url: str = ""
    sso_binding: SsoBinding = SsoBinding.REDIRECT
    slo_url: str | None = None  # takes our logout requests and responses, with HTTP-Redirect
    slo_response_url: str | None = None  # takes our logout responses, if it is another address (SAML metadata section 2.2.2)
    metadata_url: str | None = None  # None: the admin gave a file, or typed the values
    name_id_format: NameIdFormat = NameIdFormat.PERSISTENT
    subject: str | None = None  # the attribute by which users are known; None: the NameID
    signs_requests: bool = True
    unsolicited: bool = False  # the identity provider can initiate sign-ins
    targets: tuple[str, ...] = ()  # where a user can continue after such a sign-in
    trusts_email: bool = False  # its addresses count as verified
    trusts_second_factor: bool = False  # the organization takes its second factor for ours
    clock_skew_seconds: int = DEFAULT_SKEW_SECONDS  # tolerated between its clock and ours at sign-ins

    @property
    def clock_skew(self) -> timedelta:
        return timedelta(seconds=self.clock_skew_seconds)

    @property
    def protocol(self) -> ConnectionProtocol:
        return ConnectionProtocol.SAML

    @property
    def identity(self) -> tuple[str, ...]:
        """The values by which users are known, which are fixed after the first activation."""
        return (self.entity_id, self.subject or self.name_id_format)

    @property
    def initiator(self) -> str:
        """The identity provider that can initiate sign-ins, or an empty text."""
        return self.entity_id if self.unsolicited else ""

    def check(self) -> "SamlSettings":
        """Return the valid settings, with URLs in the stored form. Raises: ConnectionSettingInvalid."""
        _require_text(self.entity_id, "entity_id", "The entity ID")
        _check_skew(self.clock_skew_seconds)
        _require_url(self.sso_url, "sso_url", "The sign-in URL")
        _require_url(self.slo_url or "", "slo_url", "The sign-out URL")
        _require_url(self.slo_response_url or "", "slo_response_url", "The URL for sign-out responses")
        _require_url(self.metadata_url or "", "metadata_url", "The metadata URL")
        if self.subject is None:
            if self.name_id_format is NameIdFormat.TRANSIENT:
                _refuse("name_id_format", "A transient NameID is new at each sign-in, so users are not known by it. Choose persistent.")
        else:
            require_claim_name(self.subject, "subject")
            if is_changeable(self.subject):
                _refuse("subject", "Users can change this attribute. Choose one that stays, such as an id of the user.")
        optional = (self.slo_url, self.slo_response_url, self.metadata_url)
        slo_url, slo_response_url, metadata_url = [None if url is None else uris.canonicalize(url) for url in optional]
        targets, sso_url = _check_targets(self.targets), uris.canonicalize(self.sso_url)
        return replace(
            self, sso_url=sso_url, slo_url=slo_url, slo_response_url=slo_response_url, metadata_url=metadata_url, targets=targets
        )

    @classmethod
    def read(cls, stored: Mapping[str, Any]) -> "SamlSettings":
        return cls(**_known(cls, stored, sso_binding=SsoBinding, name_id_format=NameIdFormat, targets=tuple))


def to_document(settings: OidcSettings | SamlSettings) -> dict[str, Any]:
    """Return the settings as they are stored."""
    values = {each.name: getattr(settings, each.name) for each in fields(settings)}
    return {name: list(value) if isinstance(value, tuple) else value for name, value in values.items()}


def read_settings(protocol: str, stored: Mapping[str, Any]) -> OidcSettings | SamlSettings:
    """Return the stored settings of a connection with this protocol."""
    return SamlSettings.read(stored) if protocol == ConnectionProtocol.SAML else OidcSettings.read(stored)


def is_changeable(attribute: str) -> bool:
    """Return whether users can change this attribute at many identity providers."""
    name = attribute.lower()
    last = name.rsplit("/", 1)[-1].rsplit(":", 1)[-1].replace("_", "").replace("-", "")
    return name.removeprefix("urn:oid:") in CHANGEABLE_OIDS or last in CHANGEABLE_NAMES


def require_claim_name(name: str, setting: str) -> None:
    """Check the name of a claim or attribute."""
    if not 0 < len(name) <= MAX_CLAIM_NAME or not is_printable(name) or name != name.strip():
        _refuse(setting, "The name of a claim has 1 to 256 characters, without spaces at the start or the end.")


def _known(kind: type["OidcSettings | SamlSettings"], stored: Mapping[str, Any], **converted: Callable[[Any], Any]) -> dict[str, Any]:
    # A process of another release may have stored more settings, or fewer.
    known = {each.name: stored[each.name] for each in fields(kind) if each.name in stored}
    return {name: converted[name](value) if name in converted else value for name, value in known.items()}


def _require_text(text: str, setting: str, subject: str) -> None:
    if len(text) > MAX_TEXT or not is_printable(text) or text != text.strip():
        _refuse(setting, f"{subject} must have at most {MAX_TEXT} characters, without spaces at the start or the end.")


def _require_url(url: str, setting: str, subject: str) -> None:
    if len(url) > MAX_TEXT:
        _refuse(setting, f"{subject} must have at most {MAX_TEXT} characters.")
    if url and (flaw := uris.web_flaw(uris.to_ascii(url))):
        _refuse(setting, f"{subject} is not valid: {flaw}")


def _check_targets(targets: Sequence[str]) -> tuple[str, ...]:
    """Return the targets in the stored form."""
    if len(targets) > MAX_TARGETS:
        _refuse("targets", f"Send at most {MAX_TARGETS} targets.")
    for target in targets:
        _require_url(target, "targets", "A target")
    return tuple(dict.fromkeys(uris.canonicalize(target) for target in targets if target))


def _check_skew(seconds: int) -> None:
    if not 0 <= seconds <= MAX_SKEW_SECONDS:
        _refuse("clock_skew_seconds", f"The tolerated difference between the clocks must be between 0 and {MAX_SKEW_SECONDS} seconds.")


def _refuse(setting: str, sentence: str) -> None:
    raise ConnectionSettingInvalid(setting, sentence)


@dataclass(frozen=True, slots=True, kw_only=True)
class ClaimMapping:
    """The names of the claims or attributes that a connection reads. None: it reads none for this field."""

    email: str = "email"
    name: str | None = "name"
    given_name: str | None = "given_name"
    family_name: str | None = "family_name"
    groups: str | None = None
    picture: str | None = None  # of new accounts only, like the locale
    locale: str | None = None

    @classmethod
    def read(cls, stored: Mapping[str, Any]) -> Self:
        # A process of another release may have stored more fields, or fewer.
        return cls(**{each.name: stored[each.name] for each in fields(cls) if each.name in stored})

    @property
    def document(self) -> dict[str, str | None]:
        """The mapping as it is stored."""
        return asdict(self)

    def check(self) -> Self:
        """Return the valid mapping. Raises: ConnectionSettingInvalid."""
        for name, claim in self.document.items():
            if claim is not None:
                require_claim_name(claim, name)
        return self
