"""The console's navigation: its modes, their groups, and the entries that the signed-in user may open (decision 271).

The console is in one of three modes: an organization, the platform, or the user's own account. A page's path tells the mode, and a mode has
at most twelve entries. A page that people look for needs an entry here, or a tab in an entry, with the page's capability.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final, TypeAlias

from core.kernel import callers, roles
from core.kernel.page_paths import ACCOUNT_PATH, SECURITY_PATH

ORGANIZATION_PATH: Final = "/app/organizations/{slug}"
PLATFORM_PATH: Final = "/app/platform"


class Mode(StrEnum):
    """What the console pages are about."""

    ORGANIZATION = "organization"
    PLATFORM = "platform"
    PERSON = "person"


@dataclass(frozen=True, slots=True)
class Tab:
    """A page in the navigation. `path` is relative to its mode's path, and `capability` is the page's capability."""

    label: str
    path: str
    capability: roles.Capability | None = None


@dataclass(frozen=True, slots=True)
class Entry:
    """A navigation entry, which leads to the first of its pages that the user may open. Several pages are tabs."""

    label: str
    icon: str  # a Heroicons name
    tabs: Sequence[Tab]


Group: TypeAlias = tuple[str, Sequence[Entry]]  # heading and entries


def _page(label: str, icon: str, path: str, capability: roles.Capability | None = None) -> Entry:
    """Return an entry with a single page."""
    return Entry(label, icon, (Tab(label, path, capability),))


def _entry(label: str, icon: str, *tabs: Tab) -> Entry:
    return Entry(label, icon, tabs)


def _group(heading: str, *entries: Entry) -> Group:
    return heading, entries


# The words are defined in docs/contributing/glossary.md.
OF_ORGANIZATION: Final[Sequence[Group]] = (
    _group("", _page("Overview", "home", "", roles.Capability.ANALYTICS_VIEW)),
    _group(
        "People",
        _entry(
            "Members",
            "users",
            Tab("Members", "/members", roles.Capability.MEMBERS_VIEW),
            Tab("Groups", "/groups", roles.Capability.MEMBERS_VIEW),
            Tab("Invitations", "/invitations", roles.Capability.MEMBERS_MANAGE),
            Tab("Roles", "/roles", roles.Capability.MEMBERS_VIEW),
            Tab("Attributes", "/attributes", roles.Capability.MEMBERS_VIEW),
            Tab("Personal tokens", "/personal-tokens", roles.Capability.MEMBERS_MANAGE),
        ),
        _page("Users", "user-circle", "/users", roles.Capability.END_USERS_VIEW),
        _page("Directory", "arrow-path", "/directory", roles.Capability.INTEGRATIONS_MANAGE),
    ),
    _group(
        "Applications",
        _entry(
            "Applications",
            "squares-2x2",
            Tab("Applications", "/applications", roles.Capability.SERVICES_VIEW),
            Tab("Registration tokens", "/registration-tokens", roles.Capability.SERVICES_CREATE),
        ),
        _page("API resources", "cube", "/api-resources", roles.Capability.RESOURCES_VIEW),
        _page("Service accounts", "cpu-chip", "/service-accounts", roles.Capability.SERVICE_ACCOUNTS_MANAGE),
        _page("Webhooks", "bolt", "/webhooks", roles.Capability.WEBHOOKS_MANAGE),
    ),
    _group(
        "Activity",
        _page("Sign-ins", "arrow-right-end-on-rectangle", "/sign-ins", roles.Capability.SIGN_INS_VIEW),
        _page("Audit log", "clipboard-document-list", "/audit-log", roles.Capability.AUDIT_VIEW),
        _entry(
            "Analytics",
            "chart-bar",
            Tab("Sign-ins", "/analytics", roles.Capability.ANALYTICS_VIEW),
            Tab("Users", "/analytics/users", roles.Capability.ANALYTICS_VIEW),
            Tab("Webhooks", "/analytics/webhook-attempts", roles.Capability.WEBHOOKS_MANAGE),
            Tab("Directory", "/analytics/scim-requests", roles.Capability.INTEGRATIONS_MANAGE),
            Tab("Chosen days", "/analytics/days", roles.Capability.ANALYTICS_VIEW),
        ),
    ),
    _group(
        "Organization",
        _entry(
            "Settings",
            "cog-6-tooth",
            Tab("General", "/settings", roles.Capability.ORGANIZATION_MANAGE),
            Tab("Sign-in policy", "/sign-in-policy", roles.Capability.SIGN_IN_POLICY_MANAGE),
            Tab("Branding", "/branding", roles.Capability.ORGANIZATION_MANAGE),
            Tab("Domains", "/domains", roles.Capability.INTEGRATIONS_MANAGE),
            Tab("Single sign-on", "/connections", roles.Capability.INTEGRATIONS_MANAGE),
            Tab("Set-up links", "/setup-links", roles.Capability.INTEGRATIONS_MANAGE),
            Tab("Mail server", "/mail-server", roles.Capability.INTEGRATIONS_MANAGE),
            Tab("SIEM", "/siem", roles.Capability.INTEGRATIONS_MANAGE),
        ),
    ),
)
OF_PLATFORM: Final[Sequence[Group]] = (
    _group("", _page("Overview", "home", ""), _page("Organizations", "building-office-2", "/organizations")),
    _group(
        "People",
        _page("People", "users", "/people"),
        _entry("Platform owners", "key", Tab("Platform owners", "/owners"), Tab("Sign-in policy", "/sign-in-policy")),
        _page("Service accounts", "cpu-chip", "/service-accounts"),
    ),
    _group(
        "Activity",
        _page("Sign-ins", "arrow-right-end-on-rectangle", "/sign-ins"),
        _page("Platform log", "clipboard-document-list", "/log"),
        _page("Second factors", "shield-check", "/second-factors"),
        _entry(
            "Analytics",
            "chart-bar",
            Tab("Sign-ins", "/analytics"),
            Tab("Users", "/analytics/users"),
            Tab("Webhooks", "/analytics/webhook-attempts"),
            Tab("Directories", "/analytics/scim-requests"),
        ),
    ),
    _group(
        "Installation",
        _page("Identity providers", "finger-print", "/connections"),
        _page("Health", "heart", "/health"),
        _page("Settings in force", "cog-6-tooth", "/settings"),
    ),
)
OF_PERSON: Final[Sequence[Group]] = (
    _group(
        "", _page("Your applications", "squares-2x2", "/applications"), _page("Your organizations", "building-office-2", "/organizations")
    ),
    _group(
        "Account",
        _page("Your account", "user-circle", ""),
        _entry("Profile", "identification", Tab("Profile", "/profile"), Tab("Attributes", "/attributes")),
        _page("Security", "shield-check", "/security"),
        _page("Personal tokens", "key", "/personal-tokens"),
    ),
    _group("Applications", _page("Shared data", "share", "/consents"), _page("Subscriptions", "credit-card", "/subscriptions")),
)

# Pages that Security leads to. Their addresses are not below its own.
BELOW_SECURITY: Final = tuple(ACCOUNT_PATH + path for path in ("/password", "/passkeys", "/two-factor", "/devices", "/identities"))


@dataclass(frozen=True, slots=True)
class Link:
    """An entry or a tab as the user sees it. The page below which the user is has `is_current`."""

    label: str
    path: str
    is_current: bool
    icon: str = ""


@dataclass(frozen=True, slots=True)
class Navigation:
    """A page's navigation: headings with their links, and the current entry's tabs, if it has several."""

    mode: Mode
    groups: Sequence[tuple[str, Sequence[Link]]]
    tabs: Sequence[Link]


def navigation_for(user: callers.Person, path: str) -> Navigation:
    """Return the navigation for this user on the page with this path. Groups without links are left out."""
    mode = _mode_of(user, path)
    if path.startswith(BELOW_SECURITY):
        path = SECURITY_PATH
    root, of_mode = _roots(user, mode)
    allowed = [(heading, [(entry, _allowed(entry.tabs, root, user)) for entry in entries]) for heading, entries in of_mode]
    targets = [target for _, entries in allowed for _, pages in entries for _, target in pages]
    current = _current(path, targets, None if mode is Mode.PERSON else root)
    groups, tabs = [], []
    for heading, entries in allowed:
        links = []
        for entry, pages in entries:
            is_current = current in [target for _, target in pages]
            if pages:
                links.append(Link(entry.label, pages[0][1], is_current, entry.icon))
            if is_current and len(pages) > 1:
                tabs = [Link(label, target, target == current) for label, target in pages]
        if links:
            groups.append((heading, links))
    return Navigation(mode, groups, tabs)


def _current(path: str, targets: Sequence[str], overview: str | None) -> str | None:
    """Return the target that the page with this path is or is below, or None. All pages about an organization are below its overview."""
    above = [target for target in targets if path == target or (_is_below(path, target) and target != overview)]
    return max(above, key=len, default=None)  # "/app/account/applications" is also below "/app/account"


def pages_for(user: callers.Person) -> list[tuple[str, str]]:
    """Return the label and the path for every page in the user's mode. A tab has its entry's label before its own."""
    root, groups = _roots(user, _mode_of(user, ""))
    return [
        (label if label == entry.label else f"{entry.label}: {label}", path)
        for _, entries in groups
        for entry in entries
        for label, path in _allowed(entry.tabs, root, user)
    ]


def first_page(slug: str, rights: roles.Rights) -> str:
    """Return the path to an organization's first page that a member with these rights may open: for most members, the overview."""
    tabs = [tab for _, entries in OF_ORGANIZATION for entry in entries for tab in entry.tabs]
    paths = [tab.path for tab in tabs if tab.capability in rights]
    return ORGANIZATION_PATH.format(slug=slug) + paths[0] if paths else f"{ACCOUNT_PATH}/organizations"


def _mode_of(user: callers.Person, path: str) -> Mode:
    if isinstance(user, callers.Member):
        return Mode.ORGANIZATION
    return Mode.PLATFORM if user.is_platform_owner and _is_below(path, PLATFORM_PATH) else Mode.PERSON


def _roots(user: callers.Person, mode: Mode) -> tuple[str, Sequence[Group]]:
    """Return a mode's path and groups."""
    if isinstance(user, callers.Member):
        return ORGANIZATION_PATH.format(slug=user.acts_in.slug), OF_ORGANIZATION
    return (PLATFORM_PATH, OF_PLATFORM) if mode is Mode.PLATFORM else (ACCOUNT_PATH, OF_PERSON)


def _allowed(tabs: Sequence[Tab], root: str, user: callers.Person) -> list[tuple[str, str]]:
    """Return the label and the path for every page that the user may open."""
    rights = user.acts_in.rights if isinstance(user, callers.Member) else ()
    return [(tab.label, root + tab.path) for tab in tabs if tab.capability is None or tab.capability in rights]


def _is_below(path: str, target: str) -> bool:
    return path == target or path.startswith(f"{target}/")
