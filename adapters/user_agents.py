"""What User-Agent headers say, by the rules of the ua-parser project."""

from functools import lru_cache
from typing import Final

from ua_parser import OS, Domain, UserAgent
from ua_parser.basic import Resolver
from ua_parser.loaders import load_lazy_builtins

from core.accounts.devices_rules import DeviceType, ParsedUserAgent

# What is looked at. Some 640 expressions search all of it, which takes a few milliseconds for what matches none of them.
LENGTH: Final = 512
REMEMBERED: Final = 1024
NAME_LENGTH: Final = 40  # of browsers and systems, some of which are called as the header says
VERSION_LENGTH: Final = 40
UNKNOWN_BROWSER, UNKNOWN_SYSTEM = "Unknown browser", "unknown system"
# Systems that run on telephones and tablets, as the rules call them.
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
    """ports.outside.Agents. Making one reads the rules and tries them out, so that no request has to wait for that."""

    def __init__(self) -> None:
        # Not the resolver of many expressions at once, which takes 26 MB where this one takes 5.
        self._resolve = Resolver(load_lazy_builtins())
        self._parsed = lru_cache(REMEMBERED)(self._parse)
        self._parse("")

    def parse(self, agent: str | None) -> ParsedUserAgent:
        return self._parsed((agent or "")[:LENGTH])

    def _parse(self, agent: str) -> ParsedUserAgent:
        found = self._resolve(agent, Domain.USER_AGENT | Domain.OS)
        browser, system = found.user_agent, found.os
        is_mobile = system is not None and system.family in MOBILE_SYSTEMS
        return ParsedUserAgent(
            browser=_name(browser) or UNKNOWN_BROWSER,
            browser_version=_version(browser),
            os=_name(system) or UNKNOWN_SYSTEM,
            os_version=_version(system),
            device_type=DeviceType.MOBILE if is_mobile else DeviceType.BROWSER,
        )


def _name(part: UserAgent | OS | None) -> str:
    name = "" if part is None else part.family.strip()
    return "" if name == "Other" else name[:NAME_LENGTH].rstrip()


def _version(part: UserAgent | OS | None) -> str | None:
    """As far as it is told without gaps, such as 17.1."""
    if part is None:
        return None
    told: list[str] = []
    for number in (part.major, part.minor, part.patch):
        if not number:
            break
        told.append(number)
    return ".".join(told)[:VERSION_LENGTH] or None
