"""Credentials for service accounts and API resources: entities, refusals, and pipeline subjects."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Final
from uuid import UUID

from core.kernel import errors, uris
from core.kernel.api_scopes import ApiScope
from core.kernel.callers import OrganizationStatus
from core.kernel.roles import Rights
from core.kernel.values import is_printable

MAX_STORED: Final = 2  # live secrets and keys per program, so that a new one can replace an old one without downtime
MAX_FEDERATED: Final = 20  # live pipeline trusts per program
LAST_USED_PRECISION: Final = timedelta(minutes=1)  # a busy program causes one write per interval
MAX_ISSUER_LENGTH: Final = 512
MAX_AUDIENCE_LENGTH: Final = 255
MAX_SUBJECT_LENGTH: Final = 512
# A subject's first segments name its owner at an issuer that many organizations share, such as GitHub.
LITERAL_SEGMENTS: Final = 2
_SEPARATORS: Final = re.compile("([:/])")


class CredentialKind(StrEnum):
    """How a program authenticates: with a secret, with a private key, or with a pipeline's token."""

    SECRET = "secret"  # noqa: S105  (not a secret)
    KEY = "key"
    FEDERATED = "federated"


class CredentialNotFound(errors.NotFound):
    """This credential does not exist."""


class TooManyCredentials(errors.Invalid):
    """There are two live secrets or keys already. Revoke the one that is no longer used first."""


class TooManyTrusts(errors.Invalid):
    """There are 20 live trusts in pipelines already. Revoke one that is no longer used first."""


class CredentialExpiryInvalid(errors.Invalid):
    """The expiry of a credential must be in the future, and at most 3,650 days ahead."""


class CredentialFieldsInvalid(errors.Invalid):
    """Send `public_key` for a key, `issuer` and `subject` for a pipeline, and neither for a secret."""


class CredentialKeyInvalid(errors.Invalid):
    """Send one public key (JWK, RFC 7517): RSA of 2048 to 8192 bits, P-256 or Ed25519. A kid has 1 to 255 visible characters."""


class IssuerInvalid(errors.Invalid):
    """The issuer must start with https://, without user name, query or fragment. Its host must be reachable, and not Gatehouse itself."""


class AudienceInvalid(errors.Invalid):
    """The audience must have 1 to 255 printable characters."""


class SubjectPatternInvalid(errors.Invalid):
    """The subject must have 1 to 512 printable characters. Use * for a whole part between : or /. The first two parts cannot be *."""


class NotForApiResources(errors.Invalid):
    """An API resource authenticates with a secret or a key. Only service accounts trust pipelines."""


@dataclass(frozen=True, slots=True)
class PipelineTrust:
    """The pipeline tokens that a service account accepts as its credential.

    `subject` is a pattern: `*` stands for one part between the separators `:` and `/`.
    """

    issuer: str
    audience: str
    subject: str

    def accepts_subject(self, subject: str) -> bool:
        """Return whether a token's subject matches the pattern, part by part."""
        patterns, parts = _SEPARATORS.split(self.subject), _SEPARATORS.split(subject)
        return (
            is_printable(subject)
            and len(patterns) == len(parts)
            and all(part == pattern or (pattern == "*" and part != "") for pattern, part in zip(patterns, parts, strict=True))
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Credential:
    """A service account's or API resource's credential, without the secret, which is not stored. Times are UTC.

    `client_id` is the program's id. `hint` tells secrets and keys apart: how the secret starts, or the key's thumbprint
    (RFC 7638).
    """

    id: UUID
    client_id: UUID
    org_id: UUID | None  # None: for the platform
    kind: CredentialKind
    name: str
    hint: str | None = None
    public_key: Mapping[str, str] | None = None
    trust: PipelineTrust | None = None
    expires_at: datetime | None  # None if it does not expire
    created_by: UUID  # this account may no longer exist
    created_at: datetime
    last_used_at: datetime | None = None


@dataclass(frozen=True, slots=True)
class NewCredential:
    """A credential to create. A secret has neither `public_key` nor `trust`, a key has `public_key`, and a pipeline has `trust`."""

    kind: CredentialKind
    name: str
    public_key: Mapping[str, object] | None = None
    trust: PipelineTrust | None = None
    expires_at: datetime | None = None


class ProgramKind(StrEnum):
    """The client kinds that authenticate for themselves."""

    SERVICE_ACCOUNT = "service_account"
    API_RESOURCE = "api_resource"
    APPLICATION = "application"  # its credentials are the application's settings


@dataclass(frozen=True, slots=True, kw_only=True)
class ProgramClient:
    """A service account or an API resource that authenticated at an endpoint for clients.

    A service account is live: its owner could create it now. `org_id`, `org_slug` and `status` are None for the
    platform's. `rights` and `scopes` belong to an organization's service account. `wait` says in how many seconds the
    program may send a request, or None if the request was not counted. `expires_at` is when the credential ends (UTC),
    or None.
    """

    kind: ProgramKind
    client_id: UUID
    credential_id: UUID
    org_id: UUID | None = None
    org_slug: str | None = None
    status: OrganizationStatus | None = None
    rights: Rights | None = None
    scopes: frozenset[ApiScope] | None = None
    wait: float | None = None
    expires_at: datetime | None = None


def parse_trust(issuer: str, audience: str, subject: str, own_issuer: str) -> PipelineTrust:
    """Return a trust in tokens from this issuer.

    The issuer must not be on our own host, because users' tokens are no credentials for programs.

    The subject's first two parts that are not empty name its owner. A pattern for these parts would accept strangers'
    pipelines at an issuer that all organizations share.
    """
    issuer = uris.to_ascii(issuer)  # all else stays: tokens must have exactly this `iss`
    if not (len(issuer) <= MAX_ISSUER_LENGTH and issuer.startswith("https://") and "?" not in issuer):
        raise IssuerInvalid
    if flaw := uris.web_flaw(issuer):
        raise IssuerInvalid(f"The issuer is not allowed: {flaw}")
    if uris.host_of(issuer) == uris.host_of(own_issuer):
        raise IssuerInvalid
    if not 0 < len(audience) <= MAX_AUDIENCE_LENGTH or not is_printable(audience):
        raise AudienceInvalid
    parts = _SEPARATORS.split(subject)[::2]
    is_text = 0 < len(subject) <= MAX_SUBJECT_LENGTH and is_printable(subject)
    if not is_text or "*" in [part for part in parts if part][:LITERAL_SEGMENTS] or any("*" in part and part != "*" for part in parts):
        raise SubjectPatternInvalid
    return PipelineTrust(issuer, audience, subject)


@dataclass(frozen=True, slots=True)
class StoredCredential:
    """A program's live key or trust, with the program as a client that would authenticate with it."""

    client: ProgramClient
    public_key: Mapping[str, str] | None
    trust: PipelineTrust | None
