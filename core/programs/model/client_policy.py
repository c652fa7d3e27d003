"""An API resource's policy about external clients, which no organization registered, and presets for well-known clients.

A client's id is the https address of its metadata document, or a sealed copy of the metadata that it registered. The
policy decides by the address's host: the client proves nothing else.

A preset only saves typing: an admin may admit the same hosts by hand. A host belongs here when a public source shows that it serves a
client ID metadata document. Every preset has its source and the date beside it, so that a changed client changes one line.
"""

from collections.abc import Collection
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Final

from core.applications.model.client_settings import client_host
from core.kernel import errors

MAX_CLIENT_HOSTS: Final = 50  # per API resource


class ClientHostInvalid(errors.Invalid):
    """A host of clients is not valid. Write the host alone, such as claude.ai or localhost:8000, without https:// and path."""


class TooManyClientHosts(errors.Invalid):
    """An API resource lists at most 50 hosts of clients. Remove hosts that are no longer used."""


class ClientHostsMissing(errors.Invalid):
    """The policy admits clients of listed hosts only, but lists no host. Add a host, or choose another policy."""


class ClientScopeUnknown(errors.Invalid):
    """The API resource has no such scope. Let external clients ask only for scopes that it has, and for profile and email, each once."""


class ExternalClientsOfAnyone(errors.Invalid):
    """Everyone who signs up can connect external clients to this API, because anyone has access to it. Choose who may use this API."""


class AccessWasChosen(errors.Conflict):
    """This API already has another access policy, which stays. Send this again without access, or change the access settings first."""


USER_SCOPES: Final = ("profile", "email")  # OpenID Connect scopes that give a client the user's data


class ClientAdmission(StrEnum):
    """The external clients that may ask for an API resource."""

    NONE = "none"
    LISTED = "listed"  # clients at the listed hosts
    ANY = "any"


@dataclass(frozen=True, slots=True, kw_only=True)
class ExternalClientPolicy:
    """The external clients that may ask for an API resource, and the scopes that they may ask for.

    Whether the user has access to the API resource is decided by its access policy.
    """

    admit: ClientAdmission = ClientAdmission.NONE
    hosts: tuple[str, ...] = ()  # as `client_host` returns them; kept while the policy is not `listed`
    scopes: tuple[str, ...] | None = None  # from the API resource and USER_SCOPES; None: all
    # Whether client assertions may have the token endpoint's address as audience, in place of the issuer
    accepts_token_endpoint_audience: bool = False
    registration: bool = False  # whether clients that registered themselves, and so have no host, may come too

    @property
    def is_on(self) -> bool:
        """Whether any external client may ask."""
        return self.admit is not ClientAdmission.NONE

    def known_scopes(self, names: Collection[str]) -> tuple[str, ...]:
        """Return which of the API resource's scopes external clients may ask for."""
        return tuple(name for name in names if self.scopes is None or name in self.scopes)

    def narrowed(self, names: Collection[str]) -> "ExternalClientPolicy":
        """Return the policy after the API resource got these scopes in place of its former scopes."""
        return self if self.scopes is None else replace(self, scopes=self.known_scopes([*names, *USER_SCOPES]))


NO_EXTERNAL_CLIENTS: Final = ExternalClientPolicy()  # for a new API resource


def admits(policy: ExternalClientPolicy, host: str | None) -> bool:
    """Return whether external clients at this host, as `client_host` returns it, may ask for the API resource.

    `host` is None for a client that registered itself.
    """
    if not policy.is_on:
        return False
    if host is None:
        return policy.registration
    return policy.admit is ClientAdmission.ANY or host in policy.hosts


def check_policy(policy: ExternalClientPolicy, scope_names: Collection[str]) -> ExternalClientPolicy:
    """Return the policy with every host once in its canonical form. `scope_names` are the API resource's scopes."""
    hosts = tuple(dict.fromkeys(_parse_host(host) for host in policy.hosts))
    if len(hosts) > MAX_CLIENT_HOSTS:
        raise TooManyClientHosts
    if policy.admit is ClientAdmission.LISTED and not hosts:
        raise ClientHostsMissing
    new = replace(policy, hosts=hosts).narrowed(scope_names)
    if policy.scopes is not None and sorted(policy.scopes) != sorted(new.scopes or ()):
        raise ClientScopeUnknown
    return new


def _parse_host(text: str) -> str:
    host = None if {"/", "?", "\\"} & {*text} else client_host(f"https://{text}/")
    if host is None:
        raise ClientHostInvalid
    return host


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientPreset:
    """The clients that belong to a product."""

    name: str  # in forms
    label: str
    hosts: tuple[str, ...]
    accepts_token_endpoint_audience: bool = False  # its assertions name the token endpoint


PRESETS: Final = (
    # The documents are /oauth/mcp-oauth-client-metadata, for the web and the apps, and /oauth/claude-code-client-metadata, at claude.ai.
    # Some clients name the first document at claude.com, where the product moves. https://github.com/anthropics/claude-ai-mcp/issues/518
    # (2026-07-01), https://github.com/apify/mcpc/pull/187 (2026-04-17)
    ClientPreset(name="claude", label="Claude", hosts=("claude.ai", "claude.com")),
    # The documents are /oauth/client.json, and /oauth/ID/client.json for every connector. These clients prefer private_key_jwt, and their
    # assertions have the token endpoint as audience. https://github.com/django-oauth/django-oauth-toolkit/issues/1857 (2026-09-20),
    # https://github.com/Artexis10/exomem/pull/380 (2026-08-07)
    ClientPreset(name="chatgpt", label="ChatGPT", hosts=("chatgpt.com",), accepts_token_endpoint_audience=True),
    # The document is /oauth/client-metadata.json. https://github.com/microsoft/vscode/issues/298300 (2026-02-27)
    ClientPreset(name="vscode", label="Visual Studio Code", hosts=("vscode.dev",)),
)
