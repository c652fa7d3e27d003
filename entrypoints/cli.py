"""The command line: `gatehouse COMMAND`. Every command's help ends with an example.

Modules are imported by the command that needs them, because help must be quick.
"""

import gc
import json
import os
import pwd
import secrets
import signal
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final, ParamSpec, TypeVar

import click

from entrypoints.settings import Settings, SettingsInvalid, load
from entrypoints.version import REVISION, VERSION

# The frameworks of `gatehouse quickstart`. Its module is imported only when it runs.
FRAMEWORKS: Final = ("flask", "django", "fastapi", "express", "nextjs", "spa", "apache")

P = ParamSpec("P")
T = TypeVar("T")


class OperatorError(click.ClickException):
    """An error that the operator can fix. It is shown as a sentence without a traceback."""

    def show(self, file: object = None) -> None:
        """Print the message to standard error."""
        click.echo(f"gatehouse: {self.message}", err=True)


def _settings() -> Settings:
    try:
        return load()
    except SettingsInvalid as error:
        raise OperatorError(str(error)) from None


@click.group(
    invoke_without_command=True,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    epilog="Example: gatehouse serve --workers 2",
)
@click.version_option(VERSION, message=f"gatehouse %(version)s ({REVISION or 'revision unknown'})")
@click.pass_context
def main(context: click.Context) -> None:
    """Gatehouse: single sign-on and identity for organizations, their applications and their users.

    Without a command, the service starts with an embedded PostgreSQL, and prints a link that signs the
    first platform owner in. Settings are environment variables that start with SSO_.
    docs/reference/settings.md lists them.
    """
    if os.getpid() == 1:
        # The kernel drops a signal to the first process of a container if the process has no handler, as until it serves.
        signal.signal(signal.SIGTERM, lambda *_: os._exit(128 + signal.SIGTERM))
    if context.invoked_subcommand is None:
        offered = offer_owner(os.environ)
        os.environ |= offered
        context.invoke(serve, welcome=True, show_password=bool(offered))


def offer_owner(environment: Mapping[str, str]) -> dict[str, str]:
    """Return settings for the first platform owner with a new password, or none if the environment has a database or an owner.

    The service uses them only while it has no platform owner, and prints them only then.
    """
    email, password = "SSO_PLATFORM_OWNER_EMAIL", "SSO_PLATFORM_OWNER_PASSWORD"
    if any(environment.get(name) for name in ("SSO_DATABASE_URL", email, password)):
        return {}
    return {email: "owner@gatehouse.example", password: secrets.token_hex(10)}


@main.command(epilog="Example: SSO_BIND=0.0.0.0:8080 gatehouse serve --workers 2")
@click.option("--workers", type=click.IntRange(1, 64), help="The number of processes on one socket (default: SSO_WORKERS).")
@click.option("--welcome", is_flag=True, help="Print the URLs, the first platform owner and the next step, as in a terminal.")
@click.option(
    "--show-password",
    is_flag=True,
    help="Print the owner's password too, and a sign-in link until they have signed in. Without a password, the link is always printed.",
)
def serve(workers: int | None = None, welcome: bool = False, show_password: bool = False) -> None:
    """Run the service until SIGTERM or Ctrl-C.

    Until the first platform owner has signed in, a start in a terminal prints the next step: a link for
    SSO_PLATFORM_OWNER_EMAIL, or the command that prints one. Other starts log the command.
    """
    from adapters.saml.libraries import LibraryCheck

    settings = _settings()
    if workers is not None:
        settings = settings.model_copy(update={"workers": workers})
    libraries = LibraryCheck()  # it runs during the imports
    gc.disable()  # until everything is imported: garbage collections took a quarter of the start
    from entrypoints.main import run_service

    welcome = welcome or sys.stdout.isatty()
    sys.exit(_run(run_service, settings, libraries, welcome=welcome, show_password=show_password))


@main.command(epilog="Example: gatehouse migrate")
def migrate() -> None:
    """Migrate the database to this release. `serve` does the same when it starts."""
    import logging

    from entrypoints.main import migrate_database

    logging.basicConfig(level=logging.INFO, format="%(message)s")  # names every index while it is built
    applied = _run(migrate_database, _settings())
    click.echo(f"Applied {len(applied)}: {', '.join(applied)}." if applied else "Nothing to do: the database is up to date.")


@main.group(epilog="Example: gatehouse owner create ada@example.com")
def owner() -> None:
    """Manage platform owners, who govern the whole installation."""


@owner.command("create", epilog='Example: echo "$PASSWORD" | gatehouse owner create ada@example.com')
@click.argument("email")
def owner_create(email: str) -> None:
    """Create the first platform owner with a verified EMAIL.

    The password is prompted for on a terminal, and otherwise read from standard input. The first
    owner promotes further owners with POST /api/platform/owners.
    """
    from entrypoints.main import create_first_owner

    settings = _settings()
    password = click.prompt("Password", hide_input=True, confirmation_prompt=True) if sys.stdin.isatty() else sys.stdin.readline()
    _run(create_first_owner, settings, email, password.rstrip("\r\n"))
    click.echo(f"{email} is now the platform owner.")


@owner.command("link", epilog="Example: gatehouse owner link ada@example.com")
@click.argument("email")
def owner_link(email: str) -> None:
    """Print a link that signs the first platform owner EMAIL in, once, within 10 minutes.

    The owner is created if there is none. After their first sign-in, use `gatehouse owner recover`.
    """
    from entrypoints.main import create_first_link

    click.echo(_run(create_first_link, _settings(), email))
    click.echo("The link works once, for 10 minutes.", err=True)


@owner.command("recover", epilog="Example: gatehouse owner recover ada@example.com")
@click.argument("email")
@click.option(
    "--reset-factors", is_flag=True, help="The link also removes all factors, and signs out all devices. Asks for the address again."
)
@click.option("--yes", is_flag=True, help="With --reset-factors: do not ask.")
def owner_recover(email: str, reset_factors: bool, yes: bool) -> None:
    """Print a link that signs the platform owner EMAIL in, once, within 15 minutes.

    The link replaces the password, but not the second factor. It is recorded in the platform's
    log, and all other platform owners get an email.
    """
    from entrypoints.main import create_recovery_link

    if reset_factors and not yes:
        typed = click.prompt("This removes all passkeys and second factors of the account. Type its address again", err=True)
        if typed.strip().casefold() != email.strip().casefold():
            raise click.ClickException("The addresses differ. Nothing was changed.")
    click.echo(_run(create_recovery_link, _settings(), email, _operator(), reset_factors))
    click.echo("The link works once, for 15 minutes. All other platform owners get an email about it.", err=True)


def _operator() -> str:
    """Return the operator's user name on this machine, for the platform's log."""
    try:
        return os.environ.get("SUDO_USER") or pwd.getpwuid(os.getuid()).pw_name
    except KeyError:  # in a container, the user can lack a name
        return f"uid {os.getuid()}"


@main.group(epilog="Example: gatehouse keys rotate")
def keys() -> None:
    """Manage the keys that sign access tokens, and the keys that encrypt secrets in the database."""


COMPROMISED_WARNING: Final = """\
This removes all signing keys at once, in every process:
- Access tokens and ID tokens from before are refused. Applications get new ones with their refresh tokens.
- Sign-ins that wait for a second factor start over.
- Browser sessions and refresh tokens stay. Users are not signed out.
- Applications that cache the key set accept the old keys, and refuse the new one, until they read it again: up to 5 minutes."""


@keys.command("rotate", epilog="Example: gatehouse keys rotate")
@click.option("--compromised", is_flag=True, help="Remove all earlier keys at once, because a key was stolen. Asks for confirmation.")
@click.option("--yes", is_flag=True, help="With --compromised: do not ask.")
def keys_rotate(compromised: bool, yes: bool) -> None:
    """Publish a new signing key for access tokens and ID tokens. It signs after SSO_SIGNING_KEY_LEAD_TIME.

    The old key stays published until its last token has expired, so no user is signed out, and no
    application refuses a token. The first key of an installation signs at once.
    """
    from entrypoints.main import rotate_signing_key

    settings = _settings()
    if compromised:
        click.echo(COMPROMISED_WARNING, err=True)
        if not yes:
            click.confirm("Continue?", abort=True, err=True)
    rotation = _run(rotate_signing_key, settings, _operator(), compromised)
    if rotation.signs_at is None:
        click.echo(f"New tokens are signed with {rotation.kid}.")
    elif rotation.is_new:
        click.echo(f"{rotation.kid} is published. It signs new tokens from {rotation.signs_at:%Y-%m-%d %H:%M:%S} UTC.")
    else:
        click.echo(f"Nothing changed: {rotation.kid} is published already, and signs from {rotation.signs_at:%Y-%m-%d %H:%M:%S} UTC.")


@keys.command("generate", epilog="Example: export SSO_ENCRYPTION_KEYS=$(gatehouse keys generate)")
def keys_generate() -> None:
    """Print a new encryption key in the format of SSO_ENCRYPTION_KEYS.

    SSO_ENCRYPTION_KEYS takes several keys, separated by commas. The first key encrypts.
    """
    from adapters.crypto import generate_key

    click.echo(generate_key())


@keys.command("reencrypt", epilog="Example: SSO_ENCRYPTION_KEYS=$new,$old gatehouse keys reencrypt")
def keys_reencrypt() -> None:
    """Encrypt all stored secrets with the first key. After that, remove the other keys."""
    from entrypoints.main import reencrypt_secrets

    count = _run(reencrypt_secrets, _settings())
    click.echo(f"{count} values were encrypted again. You can remove all keys but the first.")


@main.group(epilog="Example: gatehouse backup create /backups/today --keys /keys/today")
def backup() -> None:
    """Back up the database, prove a backup, and restore it. docs/operating/backup.md is the guide."""


_BACKUP_KEYS = click.option("--keys", "keys_dir", type=click.Path(path_type=Path), help="The directory of the encryption keys.")


@backup.command("create", epilog="Example: gatehouse backup create /backups/today --keys /keys/today")
@click.argument("directory", type=click.Path(path_type=Path))
@click.option(
    "--keys", "keys_dir", type=click.Path(path_type=Path), help="Copy the encryption keys to this directory, apart from the backup."
)
def backup_create(directory: Path, keys_dir: Path | None) -> None:
    """Write all data to DIRECTORY, which must be new or empty. The service can run or be stopped.

    DIRECTORY gets no encryption keys, and cannot be restored without them.
    """
    from entrypoints.backup import create

    created = _run(create, _settings(), directory, keys_dir)
    click.echo(f"{directory} is complete: {created.rows} rows in {len(created.tables)} tables.")
    keys = ", ".join(created.key_checks)
    click.echo(
        f"A restore needs the encryption keys {keys}. "
        + (f"They are in {keys_dir}." if keys_dir else "They are not in the backup: store them in another place.")
    )


@backup.command("verify", epilog="Example: gatehouse backup verify /backups/today --keys /keys/today")
@click.argument("directory", type=click.Path(path_type=Path))
@_BACKUP_KEYS
def backup_verify(directory: Path, keys_dir: Path | None) -> None:
    """Restore DIRECTORY into a temporary database, count all rows, decrypt all secrets, and sign in. Changes nothing else.

    Without --keys, the keys in the settings are used.
    """
    from entrypoints.backup import verify

    verified, secrets = _run(verify, _settings(), directory, keys_dir)
    click.echo(f"{directory} is good. It is of {verified.created_at:%Y-%m-%d %H:%M:%S} UTC.")
    click.echo(f"{verified.rows} rows in {len(verified.tables)} tables were restored and counted, and {secrets} secrets were decrypted.")
    click.echo("A user signed in to the restored service.")


@backup.command("restore", epilog="Example: gatehouse backup restore /backups/today --keys /keys/today")
@click.argument("directory", type=click.Path(path_type=Path))
@_BACKUP_KEYS
def backup_restore(directory: Path, keys_dir: Path | None) -> None:
    """Restore DIRECTORY into the configured database, which must be empty. All rows are restored, or none.

    Users sign in again afterwards. With the embedded database, --keys also puts the keys back.
    """
    from entrypoints.backup import restore

    restored = _run(restore, _settings(), directory, keys_dir)
    click.echo(f"{restored.rows} rows in {len(restored.tables)} tables were restored, of {restored.created_at:%Y-%m-%d %H:%M:%S} UTC.")
    click.echo("Start the service. All users sign in again. docs/operating/backup.md lists what else to check.")


@main.command(epilog="Example: gatehouse doctor")
def doctor() -> None:
    """Check settings, database, mail, DNS, billing, clock, libraries and password hashing, and report problems."""
    from entrypoints.doctor.checks import examine

    sys.exit(_run(examine, _settings(), click.echo))


@main.group(
    invoke_without_command=True,
    subcommand_metavar="[COMMAND]",
    epilog="Example: gatehouse demo --json --redirect-uri http://localhost:3000/callback",
)
@click.option("--json", "as_json", is_flag=True, help="Print the demo data as one JSON object, secrets included.")
@click.option("--redirect-uri", "redirect_uris", multiple=True, help="A redirect URI of the demo's applications. Can be repeated.")
@click.pass_context
def demo(context: click.Context, as_json: bool, redirect_uris: tuple[str, ...]) -> None:
    """Create two organizations with members, services, programs and end users, and print curl commands to try them.

    A second run adds no data. It creates new passwords, client secrets and API keys, because the old secrets cannot be
    shown again.
    """
    if context.invoked_subcommand is not None:
        return
    from entrypoints.demo import output
    from entrypoints.main import seed_demo

    seeded, base_url = _run(seed_demo, _settings(), redirect_uris)
    for note in output.notes(seeded, redirect_uris):
        click.echo(f"gatehouse: {note}", err=True)
    click.echo(json.dumps(output.as_json(seeded, base_url), indent=2) if as_json else output.as_walk(seeded, base_url), nl=as_json)


@demo.command("mcp", epilog="Example: gatehouse demo mcp --port 9100")
@click.option("--port", type=click.IntRange(1, 65535), default=9100, show_default=True, help="The port of the MCP server on localhost.")
def demo_mcp(port: int) -> None:
    """Run an MCP server that Gatehouse protects, and a client that connects to it and prints its steps.

    Run `gatehouse demo` first, and keep the service running. The MCP server then stays until Ctrl-C,
    so that you can connect an assistant to it.
    """
    from entrypoints.demo import mcp
    from entrypoints.demo.calls import CallFailed
    from entrypoints.main import seed_notes

    settings = _settings()
    try:
        mcp.run(port, lambda identifier: _run(seed_notes, settings, identifier), click.echo)
    except CallFailed as failure:
        raise OperatorError(str(failure)) from None
    except KeyboardInterrupt:
        click.echo()


@main.command(epilog="Example: gatehouse quickstart flask --url http://localhost:9001")
@click.argument("framework", type=click.Choice(FRAMEWORKS), metavar="FRAMEWORK")
@click.option("--organization", metavar="SLUG", help="The organization that gets the application. The default is the only one.")
@click.option("--directory", type=click.Path(path_type=Path), help="A new or empty directory (default: gatehouse-FRAMEWORK).")
@click.option("--url", help="The address of the application (default: that of the quickstart).")
def quickstart(framework: str, organization: str | None, directory: Path | None, url: str | None) -> None:
    """Create an application, and write a directory with its code that is ready to run.

    FRAMEWORK is flask, django, fastapi, express, nextjs, spa or apache. The code is that of the
    quickstart in the documentation. Only you can read the files with the client secret. The service
    can run or be stopped.
    """
    from entrypoints.quickstart import describe, write

    folder = directory or Path(f"gatehouse-{framework}")
    written = _run(write, _settings(), framework, folder, url, organization)
    click.echo(describe(written, Path.cwd()))


@main.command(epilog="Example: gatehouse openapi > openapi.json")
def openapi() -> None:
    """Print the API description (OpenAPI 3.1)."""
    from entrypoints.http.app import describe

    click.echo(json.dumps(describe(), indent=2))


def _run(run: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """Return what `run` returns. Errors that the operator can fix become a sentence instead of a traceback."""
    from entrypoints.fixable import FIXABLE

    try:
        return run(*args, **kwargs)
    except FIXABLE as error:
        raise OperatorError(getattr(error, "message", None) or str(error)) from None


if __name__ == "__main__":
    main(prog_name=os.environ.get("GATEHOUSE_COMMAND", "gatehouse"))
