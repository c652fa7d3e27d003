"""The documentation pages: their links, their headers, the search, and that all links from the console to them are right."""

import re
from typing import Final

import pytest
from lxml import html
from quart_trio import QuartTrio

from entrypoints.http.base.rendering import documentation, guides
from entrypoints.http.base.rendering.assets import HTTP
from entrypoints.http.base.rendering.guides import GUIDES
from tests.support.builders import Api
from tests.support.direct import ask

LARGEST: Final = 100_000  # bytes
PAGES: Final = sorted(address for address, file in documentation.files().items() if file.suffix == ".md")


@pytest.mark.slow
async def test_every_page_is_complete_and_its_links_lead_to_pages_and_headings(api: Api) -> None:
    documents = {}
    wrong = []
    for address in PAGES:
        page = await api.get(address)
        documents[address] = document = html.document_fromstring(page.text)
        ids = document.xpath("//@id")
        if page.status != 200 or len(document.findall(".//h1")) != 1 or len(ids) != len(set(ids)):
            wrong.append(f"{address}: {page.status}, h1: {len(document.findall('.//h1'))}, {sorted(ids)}")
        if len(page.text.encode()) > LARGEST:
            wrong.append(f"{address} has {len(page.text.encode())} bytes")
        comments = [text for text in document.xpath("//main//text()[not(ancestor::code)]") if "<!--" in text]
        if comments or document.xpath("//@style | //script[not(@src)] | //style"):
            wrong.append(f"{address} has an inline style or script, or a comment")
    for address, document in documents.items():
        for link in document.xpath("//main//@href | //main//@src | //nav//@href"):
            target, _, anchor = link.partition("#")
            if "://" in link or link in ("/app", "/docs/api"):
                continue
            if (target and target not in documentation.files()) or (anchor and anchor not in documents[target or address].xpath("//@id")):
                wrong.append(f"{address} links to {link}")
    assert not wrong, "\n".join(wrong)


async def test_a_page_loads_and_runs_only_our_files(app: QuartTrio, api: Api) -> None:
    for address in ("/docs/", "/docs/search?search=redirect"):
        page = await api.get(address)
        assert page.status == 200
        directives = dict(each.strip().split(" ", 1) for each in page.headers["Content-Security-Policy"].split(";"))
        assert directives == {
            "default-src": "'none'",
            "script-src": "'self'",
            "style-src": "'self'",
            "img-src": "'self' data:",
            "form-action": "'self'",
            "frame-ancestors": "'none'",
            "base-uri": "'none'",
        }
        loaded = re.findall(r'(?:src|rel="stylesheet" href|rel="icon" type="image/svg\+xml" href)="([^"]+)"', page.text)
        assert len(loaded) >= 3
        for file in loaded:
            assert (await app.test_client().get(file)).status_code == 200


async def test_a_browser_asks_whether_a_page_has_changed(api: Api) -> None:
    page = await api.get("/docs/guides/saml")
    assert page.headers["Cache-Control"] == "public, no-cache"
    again = await api.get("/docs/guides/saml", headers={"If-None-Match": page.headers["ETag"]})
    assert (again.status, again.text) == (304, "")
    assert again.headers["ETag"] == page.headers["ETag"]
    assert (await api.get("/docs/guides/scim", headers={"If-None-Match": page.headers["ETag"]})).status == 200


async def test_files_are_served_as_what_they_are(app: QuartTrio) -> None:
    for name, content_type in (("assets/overview.png", "image/png"), ("walk.sh", "text/plain; charset=utf-8")):
        response = await app.test_client().get(f"/docs/{name}")
        assert (response.status_code, response.headers["Content-Type"]) == (200, content_type)
        assert await response.get_data(as_text=False) == (guides.FOLDER / name).read_bytes()


@pytest.mark.parametrize("path", ["nothing", "guides", "navigation.toml", "..%2fREADME", "../README", "guides/saml.md", "%00", "assets/"])
async def test_other_files_are_not_served(app: QuartTrio, path: str) -> None:
    answer = await ask(app, "GET", f"/docs/{path}", headers=[(b"accept", b"text/html")])
    assert answer.status == 404
    assert answer.headers["Content-Type"].startswith("text/html")


async def test_the_search_finds_sections_with_all_words(api: Api) -> None:
    page = await api.get("/docs/search?search=Write+a+RECEIVER")
    first = html.document_fromstring(page.text).xpath("//ol/li")[0]
    assert first.xpath("a/@href") == ["/docs/guides/webhooks#write-a-receiver"]
    assert "verifies the signature" in first.text_content()
    assert "No section has all of these words" in (await api.get("/docs/search?search=receiver+zebra")).text
    assert "<li>" not in (await api.get("/docs/search?search=")).text.partition("<main")[2]


async def test_the_search_shows_text_as_text(api: Api) -> None:
    page = await api.get("/docs/search?search=%3Cscript%3E%22")
    assert "<script>" not in page.text
    assert page.status == 200


def test_every_guide_of_the_console_is_a_section_of_a_page() -> None:
    for template, address in GUIDES.items():
        assert (HTTP / "templates" / template).is_file()
        page, _, anchor = address.partition("#")
        headings = documentation.read_document(documentation.files()[page]).headings
        assert not anchor or anchor in {heading.anchor for heading in headings}, address


def test_every_link_of_a_template_leads_to_a_page() -> None:
    links = {
        link for template in (HTTP / "templates").rglob("*.html") for link in re.findall(r'"(/docs/[^"#{]*)', template.read_text("utf-8"))
    }
    assert links - documentation.files().keys() == {"/docs/api", "/docs/search"}
