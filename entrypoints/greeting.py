"""The text that a start in a terminal prints: the addresses, the first platform owner, and the next steps."""

import os
import sys

from entrypoints.adapters_of_settings import mail_folder
from entrypoints.settings import Settings


def greet_operator(settings: Settings, address: str, *, owner_created: bool, show_password: bool, first_link: str | None) -> None:
    """Print the text. `first_link` signs the first platform owner in."""
    emails = "sent by your mail server" if settings.smtp_url is not None else f"written to {mail_folder(settings)}/"
    lines = [f"Gatehouse serves on  {address}", f"Documentation        {address}/docs/", f"Emails are           {emails}"]
    if settings.database_url is None:
        lines.append(f"Data is in           {settings.data_dir.resolve()}/")
    if settings.is_behind_proxy:
        lines.insert(1, f"Your proxy connects to  {settings.bind}")
    if owner_created and settings.platform_owner_password is not None:
        # A password that the operator chose is never shown (security L-3).
        password = settings.platform_owner_password.get_secret_value() if show_password else "the one in SSO_PLATFORM_OWNER_PASSWORD"
        lines += [
            f"The platform owner was created just now{'; this is shown once' if show_password else ''}:",
            f"  email              {settings.platform_owner_email}",
            f"  password           {password}",
        ]
    lines.append("Press Ctrl-C to stop everything.")
    if first_link is not None:
        # Printed and never logged: the link is a secret (security L-3).
        lines += [
            "\nOpen this link to sign in as the platform owner. It works once, for ten minutes:",
            f"  {first_link}",
            "Create an organization there. Then add an application to it, in another terminal:",
            f"  {os.environ.get('GATEHOUSE_COMMAND', 'gatehouse')} quickstart flask",
        ]
    sys.stdout.write("\n" + "\n".join(lines) + "\n\n")
    sys.stdout.flush()
