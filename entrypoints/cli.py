"""The command line: `gatehouse COMMAND`. Every command's help ends with an example.

Modules are imported by the command that needs them, because help must be quick.
"""

import json
import sys
from collections.abc import Callable
from typing import ParamSpec, TypeVar

import click

from entrypoints.settings import Settings, SettingsInvalid, load
from entrypoints.version import VERSION

P = ParamSpec("P")
T = TypeVar("T")


class Sentence(click.ClickException):
    """A failure that the operator can do something about, told in a sentence."""

    def show(self, file: object = None) -> None:
        click.echo(f"gatehouse: {self.message}", err=True)


def _settings() -> Settings:
    try:
        return load()
    except SettingsInvalid as error:
        raise Sentence(str(error)) from None


@click.group(
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100}, epilog="Example: gatehouse serve --workers 2"
)
@click.version_option(VERSION, message="gatehouse %(version)s")
def main() -> None:
    """Gatehouse: single sign-on and identity for organizations, their applications and their users.

    Settings are environment variables that begin with SSO_; the README lists them.
    """


@main.command(epilog="Example: SSO_BIND=0.0.0.0:8080 gatehouse serve --workers 2")
@click.option("--workers", type=click.IntRange(1, 64), help="How many processes serve on one socket (default: SSO_WORKERS).")
@click.option("--welcome", is_flag=True, help="Print where everything is, and the first platform owner if it was made now.")
@click.option("--show-password", is_flag=True, help="Print its password, too. For ./run, which makes one up that nobody knows yet.")
def serve(workers: int | None, welcome: bool, show_password: bool) -> None:
    """Run the service until it is told to stop (SIGTERM or Ctrl-C)."""
    from entrypoints import main as service

    settings = _settings()
    if workers is not None:
        settings = settings.model_copy(update={"workers": workers})
    sys.exit(_told(service.serve, settings, welcome=welcome, show_password=show_password))


@main.command(hidden=True)
@click.option("--socket", "descriptor", type=int, required=True)
@click.option("--parent", type=int, required=True)
def worker(descriptor: int, parent: int) -> None:
    """One of several processes behind one socket; started by `serve`, never by hand."""
    from entrypoints.main import work

    sys.exit(_told(work, _settings(), descriptor, parent))


@main.command(epilog="Example: gatehouse migrate")
def migrate() -> None:
    """Bring the database to this release; `serve` does the same when it starts."""
    from entrypoints.main import migrate_now

    applied = _told(migrate_now, _settings())
    click.echo(f"Applied {len(applied)}: {', '.join(applied)}." if applied else "Nothing to do: the database is up to date.")


@main.group(epilog="Example: gatehouse owner create ada@example.com")
def owner() -> None:
    """Platform owners, who govern the whole installation."""


@owner.command("create", epilog='Example: echo "$PASSWORD" | gatehouse owner create ada@example.com')
@click.argument("email")
def owner_create(email: str) -> None:
    """Make EMAIL the first platform owner, verified.

    The password is asked for on a terminal, else read from standard input. Further owners are made by the first: POST
    /api/platform/owners.
    """
    from entrypoints.main import create_owner_now

    settings = _settings()
    password = click.prompt("Password", hide_input=True, confirmation_prompt=True) if sys.stdin.isatty() else sys.stdin.readline()
    _told(create_owner_now, settings, email, password.rstrip("\r\n"))
    click.echo(f"{email} is the platform owner now.")


@main.group(epilog="Example: gatehouse keys rotate")
def keys() -> None:
    """Keys: those that sign access tokens, and those that encrypt secrets in the database."""


@keys.command("rotate", epilog="Example: gatehouse keys rotate")
def keys_rotate() -> None:
    """Sign access tokens with a new key from now on. The old key is believed for one token lifetime more; nobody is signed out."""
    from entrypoints.main import rotate_keys_now

    kid = _told(rotate_keys_now, _settings())
    click.echo(f"Tokens are signed with {kid} from now on.")


@keys.command("generate", epilog="Example: export SSO_ENCRYPTION_KEYS=$(gatehouse keys generate)")
def keys_generate() -> None:
    """Print a new encryption key, as SSO_ENCRYPTION_KEYS takes it. The first of several keys, separated by commas, encrypts."""
    from adapters.crypto import generate_key

    click.echo(generate_key())


@keys.command("reencrypt", epilog="Example: SSO_ENCRYPTION_KEYS=$new,$old gatehouse keys reencrypt")
def keys_reencrypt() -> None:
    """Encrypt again, under the first key, whatever was encrypted under another one. After that the other keys may go."""
    from entrypoints.main import reencrypt_now

    count = _told(reencrypt_now, _settings())
    click.echo(f"{count} values were encrypted again. Only the first key is needed now.")


@main.command(epilog="Example: gatehouse doctor")
def doctor() -> None:
    """Check settings, database, mail, DNS, billing, clock, libraries and password hashing, and say what is wrong."""
    from entrypoints.doctor import examine

    sys.exit(_told(examine, _settings(), click.echo))


@main.command(epilog="Example: gatehouse demo --json --redirect-uri http://localhost:3000/callback")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object with everything that was seeded, secrets included.")
@click.option("--redirect-uri", "redirect_uris", multiple=True, help="Where its applications take people back to; may be given repeatedly.")
def demo(as_json: bool, redirect_uris: tuple[str, ...]) -> None:
    """Seed two organizations with people, services, a plan, an API key and end users, and print a walk with curl.

    A second time adds nothing, and makes new passwords, client secrets and API keys, since the old ones cannot be shown.
    """
    from entrypoints import demo as shown
    from entrypoints.main import seed_demo_now

    seeded, base_url = _told(seed_demo_now, _settings(), redirect_uris)
    for note in shown.notes(seeded, redirect_uris):
        click.echo(f"gatehouse: {note}", err=True)
    click.echo(json.dumps(shown.as_json(seeded, base_url), indent=2) if as_json else shown.as_walk(seeded, base_url), nl=as_json)


@main.command(epilog="Example: gatehouse openapi > openapi.json")
def openapi() -> None:
    """Print the description of the interface (OpenAPI 3.1)."""
    from entrypoints.http.app import describe

    click.echo(json.dumps(describe(), indent=2))


def _told(run: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """What `run` returns; what an operator can mend becomes a sentence instead of a traceback."""
    from entrypoints.main import FIXABLE

    try:
        return run(*args, **kwargs)
    except FIXABLE as error:
        raise Sentence(getattr(error, "message", None) or str(error)) from None


if __name__ == "__main__":
    main(prog_name="gatehouse")
