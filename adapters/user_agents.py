"""Browsers and operating systems in User-Agent headers, by the ua-parser project's rules."""

from collections.abc import Callable
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING, Final

from core.accounts.model import devices

if TYPE_CHECKING:
    from ua_parser import OS, PartialResult, UserAgent

# How many characters in a header are searched. If none of the 640 expressions matches, the search
# takes a few milliseconds.
MAX_HEADER_LENGTH: Final = 512
CACHE_SIZE: Final = 1024
MAX_NAME_LENGTH: Final = 40  # some rules copy browser and system names from the header
MAX_VERSION_LENGTH: Final = 40
UNKNOWN_BROWSER, UNKNOWN_SYSTEM = "Unknown browser", "unknown system"
# The names that the rules give to phone and tablet systems.
MOBILE_SYSTEMS: Final = frozenset(
    {
        "Android",
        "Bada",
        "BlackBerry OS",
        "BlackBerry Tablet OS",
        "Firefox OS",
        "KaiOS",
        "Maemo",
        "MeeGo",
        "Nokia Series 30 Plus",
        "Nokia Series 40",
        "Symbian OS",
        "Symbian^3",
        "Symbian^3 Anna",
        "Symbian^3 Belle",
        "Windows Mobile",
        "Windows Phone",
        "iOS",
        "webOS",
    }
)


class UserAgents:
    """Implements `ports.outside.UserAgentParser`. The first header takes 50 ms longer, because it loads the rules."""

    def __init__(self) -> None:
        self._parsed = lru_cache(CACHE_SIZE)(self._parse)

    @cached_property
    def _search(self) -> "Callable[[str], PartialResult]":
        from ua_parser import Domain
        from ua_parser.basic import Resolver
        from ua_parser.loaders import load_lazy_builtins

        # This resolver needs 5 MB. The resolver that searches many expressions at once needs 26 MB.
        resolver, domains = Resolver(load_lazy_builtins()), Domain.USER_AGENT | Domain.OS
        return lambda agent: resolver(agent, domains)

    def parse(self, agent: str | None) -> devices.ParsedUserAgent:
        return self._parsed((agent or "")[:MAX_HEADER_LENGTH])

    def _parse(self, agent: str) -> devices.ParsedUserAgent:
        result = self._search(agent)
        browser, system = result.user_agent, result.os
        is_mobile = system is not None and system.family in MOBILE_SYSTEMS
        return devices.ParsedUserAgent(
            browser=_name(browser) or UNKNOWN_BROWSER,
            browser_version=_version(browser),
            os=_name(system) or UNKNOWN_SYSTEM,
            os_version=_version(system),
            device_type=devices.DeviceType.MOBILE if is_mobile else devices.DeviceType.BROWSER,
        )


def _name(part: "UserAgent | OS | None") -> str:
    name = "" if part is None else part.family.strip()
    return "" if name == "Other" else name[:MAX_NAME_LENGTH].rstrip()


def _version(part: "UserAgent | OS | None") -> str | None:
    """Return the version up to its first missing part, such as 17.1."""
    if part is None:
        return None
    numbers: list[str] = []
    for number in (part.major, part.minor, part.patch):
        if not number:
            break
        numbers.append(number)
    return ".".join(numbers)[:MAX_VERSION_LENGTH] or None
