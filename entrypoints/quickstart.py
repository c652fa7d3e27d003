"""`gatehouse quickstart`: an application in the installation, and a directory with its code.

The code is the documentation's, with the application's values filled in.
"""

import os
import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from textwrap import indent
from typing import Final
from urllib.parse import urlsplit

from core.applications import services as applications_services
from core.applications.model import services
from core.kernel import uris
from core.kernel.errors import Invalid
from entrypoints.addresses import require_installation
from entrypoints.http.base.rendering import quickstarts
from entrypoints.http.base.rendering.guides import HOME
from entrypoints.http.base.rendering.quickstarts import Quickstart
from entrypoints.main import run_use_case
from entrypoints.settings import Settings
from ports import Ports

README: Final = "README.md"
# A framework's page, if it has another name.
_PAGES: Final[Mapping[str, str]] = {"spa": "single-page-application"}
# An application's address if it differs from the address on its page, because a new Apache serves the page only here.
_ADDRESSES: Final[Mapping[str, str]] = {"apache": "http://localhost"}
_AS_ROOT: Final = frozenset({"apache"})
_IGNORED: Final = (".venv/", "node_modules/", ".next/", "db.sqlite3", "__pycache__/")


class QuickstartRefused(Invalid):
    """The quickstart cannot be written. Nothing was changed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Written:
    """An application that was created, and the directory with its code."""

    organization: str  # its slug
    application: str  # its slug
    directory: Path
    commands: str  # one per line
    as_root: bool
    address: str  # where the reader signs in
    page: str  # the application's path in the console


def write(settings: Settings, framework: str, directory: Path, url: str | None, org_slug: str | None) -> Written:
    """Create an application for a framework, and write its code to a directory, which must be new or empty.

    `url` is the application's address, by default the quickstart's address.

    Raises: QuickstartRefused, NoInstallation; the errors of `services.create_by_operator`.
    """
    quickstart = quickstarts.load(_PAGES.get(framework, framework))
    server = _check_server(url or _ADDRESSES.get(framework) or quickstart.redirect_uri, is_given=url is not None)
    require_installation(settings)
    is_new = _make_empty(directory)
    uri, after = quickstart.redirect_uri, quickstart.post_logout_redirect_uri
    client = {
        "redirect_uris": (quickstarts.move(uri, server),),
        "post_logout_redirect_uris": () if after is None else (quickstarts.move(after, server),),
    }

    async def create(ports: Ports) -> tuple[str, str, services.CreatedService]:
        if server == ports.tokens.issuer:
            raise QuickstartRefused(f"{server} is the address of Gatehouse. Choose another port for the application with --url.")
        try:
            organization, created = await applications_services.create_by_operator(
                ports, org_slug, quickstart.slug, quickstart.name, quickstart.service_type, client
            )
        except services.ServiceLimitExceeded:
            raise QuickstartRefused(
                "The organization has reached its limit of applications. Delete one, or raise the limit: in the console, open Platform, "
                "then Organizations."
            ) from None
        return ports.tokens.issuer, organization.slug, created

    try:
        issuer, organization, created = run_use_case(settings, create)
    except BaseException:
        if is_new:
            directory.rmdir()
        raise
    service = created.service
    filled = quickstarts.fill(quickstart, service, created.client_secret, issuer, service.redirect_uris[0])
    written = Written(
        organization=organization,
        application=service.slug,
        directory=directory.resolve(),
        commands=filled.install + filled.start_commands,
        as_root=framework in _AS_ROOT,
        address=filled.address or server,
        page=f"{issuer}/app/organizations/{organization}/applications/{service.slug}/setup",
    )
    files = {**filled.files, README: _readme(framework, filled, written, f"{issuer}{HOME}guides/quickstarts/{quickstart.page}")}
    if filled.has_environment:
        files[".env"] = f"{quickstarts.environment(service, created.client_secret, issuer)}REDIRECT_URI={filled.redirect_uri}\n"
    secret = {name for name, text in files.items() if created.client_secret is not None and created.client_secret in text}
    files[".gitignore"] = "".join(f"{name}\n" for name in (*sorted(secret), *_IGNORED))
    try:
        for name, text in files.items():
            _save(directory / name, text, is_secret=name in secret)
    except OSError as error:
        raise QuickstartRefused(
            f"The application {service.slug} was created, but {error.filename} cannot be written: {error.strerror}. "
            "Delete the application in the console, and try again."
        ) from None
    return written


def _check_server(url: str, *, is_given: bool) -> str:
    """Return an application's server as an origin."""
    if is_given and (flaw := uris.web_flaw(url)) is not None:
        raise QuickstartRefused(f"--url {url} cannot be used: {flaw}")
    parts = urlsplit(url)
    if is_given and (parts.path not in ("", "/") or parts.query or parts.fragment):
        raise QuickstartRefused(f"--url {url} has more than a server. Leave out the path, as in http://localhost:9001.")
    return uris.canonicalize(f"{parts.scheme}://{parts.netloc}")


def _make_empty(directory: Path) -> bool:
    """Create the directory. Return whether it is new. Raises: QuickstartRefused if it has files, or cannot be written."""
    try:
        directory.mkdir(parents=True)
    except FileExistsError:
        if not directory.is_dir():
            raise QuickstartRefused(f"{directory} is a file. Choose another directory with --directory.") from None
        if not os.access(directory, os.R_OK | os.W_OK | os.X_OK):
            raise QuickstartRefused(f"{directory} cannot be written by this user. Choose another directory with --directory.") from None
        if any(directory.iterdir()):
            raise QuickstartRefused(f"{directory} is not empty. Choose another directory with --directory.") from None
        return False
    except OSError as error:
        raise QuickstartRefused(f"{directory} cannot be created: {error.strerror}. Choose another directory with --directory.") from None
    return True


def _save(file: Path, text: str, *, is_secret: bool) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    with os.fdopen(os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600 if is_secret else 0o644), "w") as opened:
        opened.write(text)


def _readme(framework: str, filled: Quickstart, written: Written, page: str) -> str:
    """Return the README text: the commands, and where to read on."""
    blocks = [("Install", filled.install), ("Start", filled.start_commands)]
    commands = "\n".join(f"## {title}\n\n```sh\n{text}```\n" for title, text in blocks if text)
    return f"""\
# {filled.name} with Gatehouse

`gatehouse quickstart {framework}` has written this directory. The application is `{written.application}` in the organization
`{written.organization}`. Users return to <{filled.redirect_uri}> after the sign-in.

{commands}
Open <{written.address}> and sign in. [The page of the application]({written.page}) shows the sign-ins.

[The quickstart]({page}) explains the code.
"""


def describe(written: Written, folder: Path) -> str:
    """Return the command's output: the result, the commands to run in `folder`, and the page to open."""
    inside = written.directory.relative_to(folder) if written.directory.is_relative_to(folder) else written.directory
    commands = f"cd {shlex.quote(str(inside))}\n{written.commands}".rstrip("\n")
    where = "Run this as root, on the machine of the web server:" if written.as_root else "Run this:"
    return f"""\
The organization {written.organization} has the new application {written.application}. Its code is in {written.directory}/.

{where}

{indent(commands, "  ")}

Then open {written.address} and sign in. This page shows the sign-ins:

  {written.page}
"""
