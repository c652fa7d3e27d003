"""The navigation of the console: its groups, and the entries that the signed-in user may open (decision 271).

A new page that people reach by navigation needs an entry here. An entry has the capability of its page.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from core.kernel.callers import Member, Person
from core.kernel.page_paths import ACCOUNT_PATH
from core.kernel.roles import Capability

ORGANIZATION_PATH: Final = "/app/organizations/{slug}"
PLATFORM_PATH: Final = "/app/platform"


@dataclass(frozen=True, slots=True)
class Entry:
    """A page of the navigation. `path` is relative to its group's, `capability` is that of the page."""

    label: str
    path: str
    capability: Capability | None = None


@dataclass(frozen=True, slots=True)
class Link:
    """An entry as the user sees it. The page below which the user is has `is_current`."""

    label: str
    path: str
    is_current: bool


# The groups with their entries. The words are those of docs/contributing/glossary.md.
OF_ORGANIZATION: Final[Sequence[tuple[str, Sequence[Entry]]]] = (
    (
        "Organization",
        (
            Entry("Overview", "", Capability.ANALYTICS_VIEW),
            Entry("Members", "/members", Capability.MEMBERS_VIEW),
            Entry("Invitations", "/invitations", Capability.MEMBERS_MANAGE),
            Entry("Users", "/users", Capability.END_USERS_VIEW),
            Entry("Applications", "/applications", Capability.SERVICES_VIEW),
            Entry("API resources", "/api-resources", Capability.RESOURCES_VIEW),
            Entry("Service accounts", "/service-accounts", Capability.SERVICE_ACCOUNTS_MANAGE),
            Entry("Personal tokens", "/personal-tokens", Capability.MEMBERS_MANAGE),
            Entry("Directory", "/directory", Capability.INTEGRATIONS_MANAGE),
            Entry("Domain", "/domain", Capability.INTEGRATIONS_MANAGE),
        ),
    ),
    (
        "Activity",
        (
            Entry("Sign-ins", "/sign-ins", Capability.SIGN_INS_VIEW),
            Entry("Audit log", "/audit-log", Capability.AUDIT_VIEW),
            Entry("Analytics", "/analytics", Capability.ANALYTICS_VIEW),
        ),
    ),
    (
        "Integrations",
        (
            Entry("Webhooks", "/webhooks", Capability.WEBHOOKS_MANAGE),
            Entry("SIEM", "/siem", Capability.INTEGRATIONS_MANAGE),
            Entry("Mail server", "/mail-server", Capability.INTEGRATIONS_MANAGE),
        ),
    ),
    (
        "Settings",
        (Entry("General", "/settings", Capability.ORGANIZATION_MANAGE), Entry("Branding", "/branding", Capability.ORGANIZATION_MANAGE)),
    ),
)
OF_PLATFORM: Final[Sequence[Entry]] = (
    Entry("Organizations", "/organizations"),
    Entry("People", "/people"),
    Entry("Platform owners", "/owners"),
    Entry("Second factors", "/second-factors"),
    Entry("Service accounts", "/service-accounts"),
    Entry("Sign-ins", "/sign-ins"),
    Entry("Platform log", "/log"),
    Entry("Health", "/health"),
    Entry("Settings in force", "/settings"),
)
OF_PERSON: Final[Sequence[Entry]] = (Entry("My applications", f"{ACCOUNT_PATH}/applications"), Entry("Your account", ACCOUNT_PATH))


def links_for(user: Person, path: str) -> list[tuple[str, list[Link]]]:
    """Return the groups of links for this user on the page with this path: heading and links. Groups without links are left out."""
    groups: list[tuple[str, list[tuple[str, str]]]] = []
    if isinstance(user, Member):
        root = ORGANIZATION_PATH.format(slug=user.acts_in.slug)
        groups += [(heading, list(_allowed(entries, root, user))) for heading, entries in OF_ORGANIZATION]
    if user.is_platform_owner:
        groups.append(("Platform", [(entry.label, PLATFORM_PATH + entry.path) for entry in OF_PLATFORM]))
    groups.append(("You", [(entry.label, entry.path) for entry in OF_PERSON]))
    # The longest path, because "/app/account/applications" is also below "/app/account".
    current = max((target for _, links in groups for _, target in links if _is_below(path, target)), key=len, default=None)
    return [(heading, [Link(label, target, target == current) for label, target in links]) for heading, links in groups if links]


def _allowed(entries: Sequence[Entry], root: str, member: Member) -> Iterator[tuple[str, str]]:
    for entry in entries:
        if entry.capability is None or entry.capability in member.acts_in.rights:
            yield entry.label, root + entry.path


def _is_below(path: str, target: str) -> bool:
    return path == target or path.startswith(f"{target}/")
