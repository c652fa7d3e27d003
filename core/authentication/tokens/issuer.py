"""The issuer in all tokens: the installation's base URL, which clients have stored."""

from core.kernel import uris
from core.kernel.causes import SYSTEM
from core.kernel.errors import Invalid
from ports import Ports


class IssuerMisspelled(Invalid):
    """The base URL is not in the spelling that browsers and clients use. Set SSO_BASE_URL to the usual one."""

    def __init__(self, url: str) -> None:
        usual = uris.canonicalize(url)
        advice = f"Set it to {usual}"
        if not usual.isascii():
            advice = "Write its host in the xn-- form"
        elif not _is_usual(usual):
            advice = "It must have no spaces, no dot at the end of its host, and no zeros before its port"
        super().__init__(f"SSO_BASE_URL is not in the spelling that browsers and clients use. {advice}.")


def is_misspelled(url: str) -> bool:
    """Return whether this URL has another spelling than browsers and clients use."""
    return url != uris.canonicalize(url) or not _is_usual(url)


def _is_usual(url: str) -> bool:
    return url.isascii() and uris.normalize(url) is not None


def spelling_warning(url: str) -> str | None:
    """Return the warning for an installation that uses an unusual spelling already, or None for the usual spelling."""
    return f"{IssuerMisspelled(url).message} If clients have stored the present one, keep it." if is_misspelled(url) else None


async def adopt(ports: Ports) -> str | None:
    """Store the issuer at the start, and return the warning about its spelling (`spelling_warning`).

    An unusual spelling is accepted only if the installation uses it already.
    """
    url = ports.tokens.issuer
    async with ports.storage.transaction(by=SYSTEM) as tx:
        await tx.signing_keys.lock()
        stored = await tx.signing_keys.issuer()
        if is_misspelled(url) and stored != url:
            raise IssuerMisspelled(url)
        if stored != url:
            await tx.signing_keys.set_issuer(url)
    return spelling_warning(url)
