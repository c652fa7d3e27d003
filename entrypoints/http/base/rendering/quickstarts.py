"""The documentation's quickstarts as data: the application to register, the files to save and the commands to run.

The console and `gatehouse quickstart` fill them in with an application's values. The tests follow the same comments in front of the code
blocks.
"""

import re
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Final
from urllib.parse import urlsplit

from core.applications.model import services
from core.kernel.uris import DEFAULT_PORTS
from entrypoints.http.base.rendering.guides import FOLDER

NO_SECRET: Final = "PASTE_THE_CLIENT_SECRET"  # noqa: S105  (the files have it if the secret is unknown)
EXAMPLE_ISSUER: Final = "https://login.example.com"
# A URI with other characters is not written into code, because it could end a text there.
PLAIN_URI: Final = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:[A-Za-z0-9:/._~\[\]-]+")
_BLOCK: Final = re.compile(r"^(?:<!-- (?P<kind>\w+)(?:: (?P<name>\S+))? -->\n)?```\w+\n(?P<text>.*?)^```$", re.MULTILINE | re.DOTALL)
_HEREDOC: Final = re.compile(r"^cat >+(?P<name>\S+) <<'?END'?\n(?P<text>.*?)^END\n", re.MULTILINE | re.DOTALL)
_REDIRECT: Final = re.compile(r'"redirect_uris": \["([^"]+)"')
_AFTER_LOGOUT: Final = re.compile(r'"post_logout_redirect_uris": \["([^"]+)"')
_REGISTRATION: Final = re.compile(r'"slug": "(?P<slug>[^"]+)", "name": "(?P<name>[^"]+)",\s+"service_type": "(?P<type>[^"]+)"')
_OPEN: Final = re.compile(r"^Open <([^>]+)>", re.MULTILINE)
_LOOPBACK: Final = ("localhost", "127.0.0.1", "::1")


@dataclass(slots=True)
class Quickstart:
    """A quickstart page."""

    page: str  # its name, such as `flask`
    slug: str = ""  # the application's slug; name and type are also the application's
    name: str = ""
    service_type: services.ServiceType = services.ServiceType.WEB
    redirect_uri: str = ""
    post_logout_redirect_uri: str | None = None
    has_environment: bool = False  # the application reads ISSUER, CLIENT_ID and CLIENT_SECRET
    install: str = ""  # commands, one per line
    start: str = ""  # the same
    address: str | None = None  # that the reader opens after the start
    files: dict[str, str] = field(default_factory=dict)  # name and text

    @property
    def start_commands(self) -> str:
        """Return the commands that start the application with the values in the file `.env`, if it reads them."""
        return f"export $(cat .env)\n{self.start}" if self.has_environment else self.start


@cache
def load(page: str) -> Quickstart:
    """Return a page's quickstart, such as `flask`."""
    quickstart, text = Quickstart(page), (FOLDER / "guides" / "quickstarts" / f"{page}.md").read_text("utf-8")
    for block in _BLOCK.finditer(text):
        if block["kind"] == "file":
            quickstart.files[block["name"]] = block["text"]
        elif block["kind"] == "start":
            quickstart.start = block["text"]
        else:
            _read_commands(quickstart, block["text"])
    if any("$CLIENT_SECRET" in file for file in quickstart.files.values()):  # the file has the values
        quickstart.has_environment = False
    if (opened := _OPEN.search(text)) is not None:
        quickstart.address = opened[1]
    return quickstart


def _read_commands(quickstart: Quickstart, text: str) -> None:
    for block in _HEREDOC.finditer(text):
        before = quickstart.files.get(block["name"], "")  # `cat >>` adds to it
        quickstart.files[block["name"]] = (before + block["text"]).strip("\n") + "\n"
    if (uri := _REDIRECT.search(text)) is not None:
        after = _AFTER_LOGOUT.search(text)
        quickstart.redirect_uri = uri[1]
        quickstart.post_logout_redirect_uri = None if after is None else after[1]
        quickstart.has_environment = "export ISSUER" in text
        if (registration := _REGISTRATION.search(text)) is not None:
            quickstart.slug, quickstart.name = registration["slug"], registration["name"]
            quickstart.service_type = services.ServiceType(registration["type"])
    else:
        quickstart.install += _HEREDOC.sub("", text)


def environment(service: services.Service, secret: str | None, base_url: str) -> str:
    """Return an application's values as the lines in a file `.env`."""
    lines = [f"ISSUER={base_url}", f"CLIENT_ID={service.client_id}"]
    if not service.service_type.is_public:
        lines.append(f"CLIENT_SECRET={secret or NO_SECRET}")
    return "\n".join(lines) + "\n"


def move(uri: str, server: str) -> str:
    """Return the URI on another server, which is an origin or any URI there."""
    new = urlsplit(server)
    return urlsplit(uri)._replace(scheme=new.scheme, netloc=new.netloc).geturl()


def fill(quickstart: Quickstart, service: services.Service, secret: str | None, base_url: str, redirect_uri: str) -> Quickstart:
    """Return the quickstart with an application's values, on the server in this redirect URI."""
    after, address = quickstart.post_logout_redirect_uri, quickstart.address
    after = after and move(after, redirect_uri)
    changes = [*_moved(quickstart, redirect_uri, after), *_values(quickstart, service, secret or NO_SECRET, base_url)]
    return replace(
        quickstart,
        redirect_uri=redirect_uri,
        post_logout_redirect_uri=after,
        has_environment=quickstart.has_environment and not service.service_type.is_public,
        install=_replaced(quickstart.install, changes),
        start=_replaced(quickstart.start, changes),
        address=address and move(address, redirect_uri),
        files={name: _replaced(text, changes) for name, text in quickstart.files.items()},
    )


def _moved(quickstart: Quickstart, new: str, sign_out_address: str | None) -> list[tuple[str, str]]:
    """Return the replacements that move a quickstart's code to another redirect URI."""
    old, after_sign_out = quickstart.redirect_uri, quickstart.post_logout_redirect_uri
    if old == new:
        return []
    before, after = urlsplit(old), urlsplit(new)
    if not before.netloc:
        return [(old, new), (f'"{before.scheme}"', f'"{after.scheme}"')]
    changes = [(old, new), (f"{before.scheme}://{before.netloc}", f"{after.scheme}://{after.netloc}")]
    if after_sign_out:  # it can be the redirect URI
        name = services.POST_LOGOUT_REDIRECT_URIS.removesuffix("s")
        changes.append((f'{name}: "{after_sign_out}"', f'{name}: "{sign_out_address}"'))
    if before.path != "/":
        changes += [(f"{quote}{before.path}{quote}", f"{quote}{after.path}{quote}") for quote in "\"'"]
    if before.port and after.hostname in _LOOPBACK:
        port = after.port or DEFAULT_PORTS[after.scheme]
        changes += [(f"{before.hostname}:{before.port}", f"{after.hostname}:{port}"), (str(before.port), str(port))]
    return changes


def _values(quickstart: Quickstart, service: services.Service, secret: str, base_url: str) -> list[tuple[str, str]]:
    """Return replacements for the values that a quickstart's commands read from the API's answer."""
    values = [
        ('$(echo "$answer" | get service client_id)', str(service.client_id)),
        ('$(echo "$answer" | get client_secret)', secret),
        ("$(python3 -c 'import secrets; print(secrets.token_hex(32))')", secrets.token_hex(32)),
        ('"$api"', f'"{base_url}"'),
        ("=$api\n", f"={base_url}\n"),
        ("$ISSUER", base_url),
        ("$CLIENT_ID", str(service.client_id)),
        ("$CLIENT_SECRET", secret),
        (EXAMPLE_ISSUER, base_url),
    ]
    if not quickstart.has_environment or service.service_type.is_public:
        values.append(('"CLIENT_ID"', f'"{service.client_id}"'))
    return values


def _replaced(text: str, changes: Sequence[tuple[str, str]]) -> str:
    """Return the text after all changes in a single pass, so that no change meets another change's text."""
    replacements: Mapping[str, str] = dict(changes)
    pattern = "|".join(re.escape(old) for old in sorted(replacements, key=len, reverse=True))
    return re.sub(pattern, lambda match: replacements[match[0]], text) if replacements else text
