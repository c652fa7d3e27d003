"""The values in notices about program secrets that expire soon or have ended (security J-12)."""

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from uuid import UUID

from core.kernel.values import Email


class NoticedSecret(StrEnum):
    """The kind of secret that an email is about."""

    PERSONAL_TOKEN = "personal_token"  # noqa: S105  (a kind, not a secret)
    API_KEY = "api_key"
    SCIM_TOKEN = "scim_token"  # noqa: S105
    REGISTRATION_TOKEN = "registration_token"  # noqa: S105
    SERVICE_ACCOUNT_CREDENTIAL = "service_account_credential"
    API_RESOURCE_CREDENTIAL = "api_resource_credential"


@dataclass(frozen=True, slots=True, kw_only=True)
class SecretNotice:
    """The facts in an email about a secret. The secret may be gone when the email is sent. Times are UTC."""

    kind: NoticedSecret
    name: str
    label: str | None  # the first characters of the secret, as lists show them
    holder: str | None  # the name of the application, service account or API resource that has it
    organization: str | None  # the name; None if the secret belongs to no organization
    expires_at: datetime
    path: str  # of the page on which the reader can replace it


@dataclass(frozen=True, slots=True, kw_only=True)
class EndedCredential:
    """A service account's or API resource's credential that just ended."""

    id: UUID
    client_id: UUID
    org_id: UUID | None  # None for a service account of the platform
    is_account: bool  # otherwise it is of an API resource
    name: str
    kind: str
    hint: str | None  # its first characters, or the thumbprint of its key
    holder: str  # the name of the service account or API resource
    organization: str | None
    org_slug: str | None
    recipient: Email | None  # who replaces it, if anyone with a verified address can


@dataclass(frozen=True, slots=True)
class CreatedSecret:
    """An API key or a SCIM token that a service account created, and that works on its own."""

    kind: NoticedSecret
    id: UUID
    name: str
    prefix: str
    holder: str | None  # the name of the API key's application
