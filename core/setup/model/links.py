"""Set-up links: a customer's IT department prepares an organization's integrations with a link, without an account."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Any, Final
from uuid import UUID

from core.federation.connections.model.connections import ConnectionProblem
from core.kernel import errors, uris
from core.kernel.callers import SetupPart
from core.kernel.values import Email

EMBEDDED_TTL: Final = timedelta(minutes=5)  # until an embedded link is opened
WORK_TTL: Final = timedelta(hours=8)  # from then on, in the browser that opened it
MAX_DAYS: Final = 14  # for a mailed link; the operator can choose fewer
USUAL_DAYS: Final = 7
MAX_RETURN_URL: Final = 2048
CODE_TTL: Final = timedelta(minutes=10)
MAX_CODES_SENT: Final = 5
MAX_ATTEMPTS: Final = 5  # for the codes of one link
MAX_OPEN_LINKS: Final = 20  # per organization
MAX_PROPOSED_DOMAINS: Final = 10  # per link


class SetupLinkKind(StrEnum):
    """How a set-up link reaches its reader."""

    EMBEDDED = "embedded"  # an application leads the browser to it at once
    MAILED = "mailed"  # an email to a named address, which also gets a code


class SetupLinkEnd(StrEnum):
    """Why a set-up link ended before its expiry."""

    ADMIN = "admin"
    CODES = "codes"  # too many wrong codes
    FINISHED = "finished"  # by its reader
    RIGHTS = "rights"  # the creator lost the right to create the link


class SetupLinkState(StrEnum):
    """A set-up link's state at a time."""

    WAITING = "waiting"
    OPEN = "open"
    FINISHED = "finished"
    ENDED = "ended"
    EXPIRED = "expired"


@dataclass(frozen=True, slots=True, kw_only=True)
class SetupLink:
    """A set-up link, without its secret. Times are UTC."""

    id: UUID
    org_id: UUID
    name: str
    kind: SetupLinkKind
    parts: tuple[SetupPart, ...]
    recipient: Email | None  # for a mailed link
    expires_at: datetime
    created_by: UUID  # the account may no longer exist
    created_at: datetime
    connection_id: UUID | None = None  # for which a certificate is renewed; the connection may no longer exist
    return_url: str | None = None  # the application's URL that the finished page leads back to
    codes_sent: int = 0
    attempts: int = 0
    opened_at: datetime | None = None
    opened_address: str | None = None
    opened_agent: str | None = None
    ended_at: datetime | None = None
    ended_by: SetupLinkEnd | None = None

    def state(self, now: datetime) -> SetupLinkState:
        """Return the link's state."""
        if self.ended_by is not None:
            return SetupLinkState.FINISHED if self.ended_by is SetupLinkEnd.FINISHED else SetupLinkState.ENDED
        if self.expires_at <= now:
            return SetupLinkState.EXPIRED
        return SetupLinkState.WAITING if self.opened_at is None else SetupLinkState.OPEN

    def is_live(self, now: datetime) -> bool:
        """Return whether the link can be opened or used."""
        return self.state(now) in (SetupLinkState.WAITING, SetupLinkState.OPEN)


@dataclass(frozen=True, slots=True, kw_only=True)
class ProposedDomain:
    """A domain that a set-up link proposes."""

    domain: str
    challenge: str  # in its DNS record
    is_found: bool = False  # the record was there when the reader checked it


@dataclass(frozen=True, slots=True, kw_only=True)
class SetupDocument:
    """The values in a proposal. Every part has some of them."""

    domains: tuple[ProposedDomain, ...] = ()
    prefix: str | None = None  # how the SCIM token starts
    connection_id: str | None = None
    preset: str | None = None
    protocol: str | None = None
    issuer: str | None = None
    client_id: str | None = None
    client_secret: str | None = field(default=None, repr=False)
    entity_id: str | None = None
    sso_url: str | None = None
    sso_binding: str | None = None  # empty: redirect
    slo_url: str | None = None
    slo_response_url: str | None = None
    metadata_url: str | None = None  # the address of the metadata that gave the values, if the metadata have an address
    certificate: str | None = None  # PEM
    metadata_fingerprints: tuple[str, ...] = ()  # the certificates that metadata gave
    own_certificate: str | None = None  # PEM, for our key
    private_key: str | None = field(default=None, repr=False)  # PKCS #8 in PEM
    fingerprints: tuple[str, ...] = ()  # the renewed certificates
    valid_until: str | None = None  # when the first renewed certificate ends, as pages show it
    siem_provider: str | None = None
    endpoint_url: str | None = None
    siem_token: str | None = field(default=None, repr=False)
    problems: tuple[ConnectionProblem, ...] | None = None  # from the last check; None if these values were not checked

    @classmethod
    def read(cls, stored: Mapping[str, Any]) -> "SetupDocument":
        values = {
            "domains": tuple(ProposedDomain(**each) for each in stored["domains"]),
            "fingerprints": tuple(stored["fingerprints"]),
            "metadata_fingerprints": tuple(stored.get("metadata_fingerprints", ())),  # earlier proposals lack them
            "problems": None if (problems := stored.get("problems")) is None else tuple(ConnectionProblem(**each) for each in problems),
        }
        return cls(**{**stored, **values})


NO_DOCUMENT: Final = SetupDocument()


@dataclass(frozen=True, slots=True, kw_only=True)
class SetupProposal:
    """A set-up link's proposal for one part. Times are UTC."""

    id: UUID
    org_id: UUID
    link_id: UUID
    part: SetupPart
    is_ready: bool
    changed_at: datetime
    document: SetupDocument = field(default=NO_DOCUMENT, repr=False)
    token_hash: bytes | None = field(default=None, repr=False)  # for a proposed SCIM token, until an admin applies it
    tried_at: datetime | None = None  # the first request with a proposed SCIM token
    tried_with: str | None = None  # its method and path
    applied_at: datetime | None = None
    applied_by: UUID | None = None


@dataclass(frozen=True, slots=True)
class ProposedToken:
    """A SCIM token that a set-up link proposes. The token opens nothing."""

    org_id: UUID
    org_slug: str
    proposal_id: UUID


@dataclass(frozen=True, slots=True)
class SetupLinkDetails:
    """A set-up link with its proposals, by part."""

    link: SetupLink
    proposals: Mapping[SetupPart, SetupProposal]


@dataclass(frozen=True, slots=True)
class CountedCode:
    """An attempt to enter a set-up link's code, which is counted. The code is None if it has expired or none was sent."""

    number: int  # the first version is 1
    salt: bytes = field(repr=False)
    code_hash: bytes = field(repr=False)


class SetupLinkNotFound(errors.NotFound):
    """This set-up link does not exist. See the list of set-up links."""


class SetupLinkEnded(errors.Invalid):
    """There is no such set-up link, or it has ended. Ask the sender for a new one."""


class SetupLinkExpired(SetupLinkEnded):
    """This set-up link has expired. Ask the sender for a new one."""


class SetupLinkOpened(SetupLinkEnded):
    """This set-up link was opened in a browser already, and works only there. Continue there, or ask the sender for a new one."""


class SetupSessionMissing(errors.Unauthenticated):
    """This page needs a set-up link that was opened in this browser. Open the link again, or ask the sender for a new one."""


class SetupSessionExpired(errors.Unauthenticated):
    """This set-up link has expired. An admin can still apply the parts that are ready. For the others, ask the sender for a new link."""


class SetupLinkCodeWrong(errors.Invalid):
    """The code is wrong or has expired. Check the newest email, or send a new code. The fifth wrong code ends the link."""


class TooManyCodes(errors.Invalid):
    """Five codes were sent already. Ask the sender for a new set-up link."""


class TooManySetupMails(errors.Limited):
    """Your organization sent too many set-up links to this address in the last hour. Retry-After says when you can send the next one."""


class TooManySetupLinks(errors.Invalid):
    """The organization already has 20 set-up links that can be used. End one that is no longer needed."""


class SetupRecipientMissing(errors.Invalid):
    """A mailed link needs the address of its reader, and an embedded link has none. Change the kind or the address."""


class SetupLinkTooLong(errors.Invalid):
    """A mailed link lives too long. Choose fewer days."""

    def __init__(self, days: int) -> None:
        super().__init__(f"A mailed link lives at most {days} days here. Choose fewer days.")


class SetupReturnUrlInvalid(errors.Invalid):
    """The return URL must be at the origin of a redirect URI or launch URL of one of your applications. Register one there first."""


def parse_return_url(text: str) -> str:
    """Return a return URL in canonical form."""
    url = uris.canonicalize(text)
    if len(url) > MAX_RETURN_URL or uris.web_flaw(url) is not None:
        raise SetupReturnUrlInvalid
    return url


class SetupPartsMissing(errors.Invalid):
    """Choose at least one part, each once."""


class SetupConnectionMissing(errors.Invalid):
    """To renew a certificate, a link needs the slug of a SAML connection. Other links have none. Change the parts or the connection."""


class SetupPartUnknown(errors.NotFound):
    """There is no such part. The field `parts` of the set-up link has its parts."""


class SetupPartFixed(errors.Invalid):
    """This part is not one of the link, or an admin has applied it already. Reload the page."""


class SetupProposalReplaced(errors.Invalid):
    """This part was changed in another window. Reload the page, and repeat your last step."""


class SetupNotReady(errors.Conflict):
    """This part is not ready, or it was applied already. Look at the set-up link again."""


class SetupReceiverNotEncrypted(errors.Invalid):
    """The audit log must not travel without encryption. Enter a URL that begins with https://."""


class SetupProposalChanged(errors.Conflict):
    """The reader has changed this part after you looked at it. Look at it again, then apply it."""


class ScimTokenNotApplied(errors.Unauthenticated):
    """The SCIM token answers only GET /scim/v2/ServiceProviderConfig yet. An admin of the organization applies it in the set-up link."""

    token_sent = True


class SetupProductMissing(errors.Invalid):
    """Choose your identity provider first."""


class SetupDomainMissing(errors.Invalid):
    """This set-up link proposes no such domain. Reload the page, and add it first."""


class TooManyProposedDomains(errors.Invalid):
    """This set-up link has 10 domains already. Remove one that you do not need."""
