"""The issuer: its usual spelling, unless the installation already uses another issuer (decision 395)."""

from dataclasses import replace

import pytest

from adapters.crypto.own_tokens import JwtTokens
from adapters.postgres.engine.pool import Pool
from core.authentication.tokens import issuing
from core.authentication.tokens.issuing import IssuerMisspelled
from ports import Ports
from tests.support.builders import run_sql

USUAL = "https://xn--bcher-kva.example"
UNUSUAL = ["https://bücher.example", "https://XN--bcher-kva.example", "HTTPS://xn--bcher-kva.example", f"{USUAL}:443"]


async def adopt(ports: Ports, url: str) -> None:
    await issuing.adopt_issuer(replace(ports, tokens=JwtTokens(url)))


@pytest.mark.parametrize("url", UNUSUAL)
async def test_an_unusual_spelling_is_refused_until_the_installation_uses_it(ports: Ports, pool: Pool, url: str) -> None:
    with pytest.raises(IssuerMisspelled, match=rf"Set it to {USUAL}\.$"):
        await adopt(ports, url)
    assert await run_sql(pool, "select url from issuer") == []
    await adopt(ports, USUAL)
    with pytest.raises(IssuerMisspelled):
        await adopt(ports, url)
    assert await run_sql(pool, "select url from issuer") == [(USUAL,)]


@pytest.mark.parametrize("url", UNUSUAL)
async def test_an_installation_keeps_its_spelling(ports: Ports, pool: Pool, url: str) -> None:
    await run_sql(pool, "insert into issuer (url) values (%s)", url)
    await adopt(ports, url)
    assert await run_sql(pool, "select url from issuer") == [(url,)]
    assert issuing.is_issuer_misspelled(url)
    with pytest.raises(IssuerMisspelled):
        await adopt(ports, url.replace("example", "Example"))
    await adopt(ports, USUAL)
    with pytest.raises(IssuerMisspelled):
        await adopt(ports, url)


@pytest.mark.parametrize("url", ["https://id.example.com:0443", " https://id.example.com", "https://id.example.com."])
async def test_what_is_no_url_is_refused(ports: Ports, pool: Pool, url: str) -> None:
    with pytest.raises(IssuerMisspelled, match="no zeros before its port"):
        await adopt(ports, url)


async def test_a_host_without_an_xn_form_is_refused(ports: Ports, pool: Pool) -> None:
    with pytest.raises(IssuerMisspelled, match="xn-- form"):
        await adopt(ports, "https://straße.example")
