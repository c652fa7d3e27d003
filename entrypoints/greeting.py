"""The text that a start in a terminal prints: the addresses, the first platform owner, and the next steps."""

import os
import sys
from dataclasses import dataclass

from entrypoints.adapters_of_settings import mail_folder
from entrypoints.addresses import locate_embedded_database
from entrypoints.settings import Settings


def name_command(command: str) -> str:
    """Return the text of a Gatehouse command for this kind of installation, such as a container."""
    return f"{os.environ.get('GATEHOUSE_COMMAND', 'gatehouse')} {command}"


def name_link_command() -> str:
    """Return the command that prints a link for the first platform owner."""
    return name_command("owner link you@example.com")


@dataclass(frozen=True, slots=True)
class FirstOwner:
    """The first platform owner after the start."""

    was_created: bool
    link: str | None  # signs them in, once
    is_missing: bool  # no platform owner has signed in yet, and the settings give them no password


def greet_operator(settings: Settings, address: str, owner: FirstOwner, *, show_password: bool) -> None:
    """Print the addresses, the first platform owner and the next steps."""
    emails = "sent by your mail server" if settings.smtp_url is not None else f"written to {mail_folder(settings)}/"
    lines = [f"Gatehouse serves on  {address}", f"Documentation        {address}/docs/", f"Emails are           {emails}"]
    if settings.database_url is None:
        data, database = settings.data_dir.resolve(), locate_embedded_database(settings)
        lines.append(f"Data is in           {data}/")
        if not database.is_relative_to(data):
            lines.append(f"The database is in   {database}/")
    if settings.is_behind_proxy:
        lines.insert(1, f"Your proxy connects to  {settings.bind}")
    if owner.was_created and settings.platform_owner_password is not None:
        # A password that the operator chose is never shown (security L-3).
        password = settings.platform_owner_password.get_secret_value() if show_password else "the one in SSO_PLATFORM_OWNER_PASSWORD"
        lines += [
            f"The platform owner was created just now{'; this is shown once' if show_password else ''}:",
            f"  email              {settings.platform_owner_email}",
            f"  password           {password}",
        ]
    lines.append("Press Ctrl-C to stop everything.")
    if owner.link is not None:
        # Printed and never logged: the link is a secret (security L-3).
        lines += ["\nOpen this link to sign in as the platform owner. It works once, for ten minutes:", f"  {owner.link}"]
        if settings.database_url is None:
            lines += [
                "Create an organization there. Then add an application to it, in another terminal:",
                f"  {name_command('quickstart flask')}",
            ]
        else:
            lines.append(f"Create an organization there. Then add an application to it, as {address}/docs/ shows.")
    elif owner.is_missing:
        lines += ["\nNo platform owner has signed in yet. Print a link that signs the first one in:", f"  {name_link_command()}"]
    sys.stdout.write("\n" + "\n".join(lines) + "\n\n")
    sys.stdout.flush()
