"""Guides to connect an application, by framework: the quickstarts of the documentation with the values of the application filled in."""

import re
import secrets
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import urlencode, urlsplit

from core.applications.model.registered_uris import POST_LOGOUT_REDIRECT_URIS, REDIRECT_URIS
from core.applications.model.services import Service, ServiceType
from core.kernel import uris
from entrypoints.http.base.context import app_context
from entrypoints.http.base.rendering import quickstarts
from entrypoints.http.base.rendering.documentation import HOME
from entrypoints.http.base.rendering.quickstarts import Quickstart

NO_SECRET: Final = "PASTE_THE_CLIENT_SECRET"  # noqa: S105  (the page shows it if the secret is unknown)
EXAMPLE_ISSUER: Final = "https://login.example.com"
# A URI with other characters is not written into code: it could end a text there.
_PLAIN: Final = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:[A-Za-z0-9:/._~\[\]-]+")
_LOOPBACK: Final = ("localhost", "127.0.0.1", "::1")


@dataclass(frozen=True, slots=True)
class Framework:
    """A framework with a quickstart."""

    page: str
    label: str
    types: Collection[ServiceType] = (ServiceType.WEB,)
    fixed_path: bool = False  # the library chooses the path of the redirect URI


FRAMEWORKS: Final = (
    Framework("flask", "Flask"),
    Framework("fastapi", "FastAPI"),
    Framework("django", "Django", fixed_path=True),
    Framework("express", "Express", fixed_path=True),
    Framework("nextjs", "Next.js", fixed_path=True),
    Framework("spring-boot", "Spring Boot", fixed_path=True),
    Framework("go", "Go"),
    Framework("php", "PHP"),
    Framework("asp-net-core", "ASP.NET Core"),
    Framework("single-page-application", "JavaScript in the browser", (ServiceType.SPA,)),
    Framework("android", "Android", (ServiceType.MOBILE,)),
    Framework("ios", "iOS", (ServiceType.MOBILE,)),
)


@dataclass(frozen=True, slots=True)
class Guide:
    """A guide to connect the application with a framework. `missing` is the query that shows the URIs to register in the settings."""

    name: str
    label: str
    href: str  # of the quickstart
    has_environment: bool  # whether its code reads the file `.env`
    install: str
    files: Sequence[tuple[str, str]]
    start: str
    unregistered: Sequence[str]
    missing: str


def guides(service: Service, secret: str | None) -> list[Guide]:
    """Return the guides for an application. `secret` is its client secret, if the page may show it."""
    return [_fill(framework, service, secret or NO_SECRET) for framework in FRAMEWORKS if service.service_type in framework.types]


def environment(service: Service, secret: str | None) -> str:
    """Return the values of an application as the lines of a file `.env`."""
    lines = [f"ISSUER={app_context().base_url}", f"CLIENT_ID={service.client_id}"]
    if not service.service_type.is_public:
        lines.append(f"CLIENT_SECRET={secret or NO_SECRET}")
    return "\n".join(lines) + "\n"


def _fill(framework: Framework, service: Service, secret: str) -> Guide:
    quickstart = quickstarts.load(framework.page)
    redirect_uri = _usable(framework, quickstart, service.redirect_uris) or quickstart.redirect_uri
    after = _sign_out_address(quickstart, redirect_uri)
    changes = [*_moved(quickstart, redirect_uri, after), *_values(quickstart, service, secret)]
    needed = {REDIRECT_URIS: (redirect_uri, service.redirect_uris), POST_LOGOUT_REDIRECT_URIS: (after, service.post_logout_redirect_uris)}
    unregistered = {
        name: uri for name, (uri, registered) in needed.items() if uri and uris.find_registered(registered, uris.canonicalize(uri)) is None
    }
    return Guide(
        name=framework.page,
        label=framework.label,
        href=f"{HOME}guides/quickstarts/{framework.page}",
        has_environment=quickstart.has_environment and not service.service_type.is_public,
        install=_replaced(quickstart.install, changes),
        files=[(name, _replaced(text, changes)) for name, text in quickstart.files],
        start=_replaced(quickstart.start, changes),
        unregistered=list(unregistered.values()),
        missing=urlencode(unregistered),
    )


def _usable(framework: Framework, quickstart: Quickstart, registered: Sequence[str]) -> str | None:
    """Return the first registered redirect URI that the code of the quickstart can have, or None."""
    path = urlsplit(quickstart.redirect_uri).path
    for uri in registered:
        if _PLAIN.fullmatch(uri) and (urlsplit(uri).path == path if framework.fixed_path else True):
            return uri
    return None


def _sign_out_address(quickstart: Quickstart, redirect_uri: str) -> str | None:
    """Return the address that the code sends users to after the sign-out: that of the quickstart, on the server of the redirect URI."""
    address, new = quickstart.post_logout_redirect_uri, urlsplit(redirect_uri)
    return address and urlsplit(address)._replace(scheme=new.scheme, netloc=new.netloc).geturl()


def _moved(quickstart: Quickstart, new: str, sign_out_address: str | None) -> list[tuple[str, str]]:
    """Return the replacements that move the code of a quickstart to another redirect URI."""
    old, after_sign_out = quickstart.redirect_uri, quickstart.post_logout_redirect_uri
    if old == new:
        return []
    before, after = urlsplit(old), urlsplit(new)
    if not before.netloc:
        return [(old, new), (f'"{before.scheme}"', f'"{after.scheme}"')]
    changes = [(old, new), (f"{before.scheme}://{before.netloc}", f"{after.scheme}://{after.netloc}")]
    if after_sign_out:  # it can be the redirect URI
        name = POST_LOGOUT_REDIRECT_URIS.removesuffix("s")
        changes.append((f'{name}: "{after_sign_out}"', f'{name}: "{sign_out_address}"'))
    if before.path != "/":
        changes += [(f"{quote}{before.path}{quote}", f"{quote}{after.path}{quote}") for quote in "\"'"]
    if after.hostname in _LOOPBACK and after.port:
        changes += [(f"{before.hostname}:{before.port}", f"{after.hostname}:{after.port}"), (str(before.port), str(after.port))]
    return changes


def _values(quickstart: Quickstart, service: Service, secret: str) -> list[tuple[str, str]]:
    """Return replacements for the values that the commands of a quickstart read from the answer of the API."""
    values = [
        ('$(echo "$answer" | get service client_id)', str(service.client_id)),
        ('$(echo "$answer" | get client_secret)', secret),
        ("$(python3 -c 'import secrets; print(secrets.token_hex(32))')", secrets.token_hex(32)),
        ('"$api"', f'"{app_context().base_url}"'),
        ("=$api\n", f"={app_context().base_url}\n"),
        (EXAMPLE_ISSUER, app_context().base_url),
    ]
    if not quickstart.has_environment or service.service_type.is_public:
        values.append(('"CLIENT_ID"', f'"{service.client_id}"'))
    return values


def _replaced(text: str, changes: Sequence[tuple[str, str]]) -> str:
    """Return the text with all changes made in one pass, so that no change meets the text of another."""
    replacements = dict(changes)
    pattern = "|".join(re.escape(old) for old in sorted(replacements, key=len, reverse=True))
    return re.sub(pattern, lambda match: replacements[match[0]], text) if replacements else text


def values_of(service: Service, secret: str | None) -> dict[str, Any]:
    """Return the values of `applications/_frameworks.html`."""
    return {"guides": guides(service, secret), "environment": environment(service, secret), "has_secret": secret is not None}
