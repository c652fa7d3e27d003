"""The picture of a user: uploaded, shown, replaced and removed. Hostile files change nothing."""

import re
from datetime import timedelta
from io import BytesIO
from typing import Final

import pytest
from PIL import Image
from quart_trio import QuartTrio
from werkzeug.datastructures import Headers

from adapters.postgres.engine.pool import Pool
from core.accounts.model.accounts import Account
from core.kernel.rate_limits import IMAGE_UPLOAD
from tests.accounts.api.account_pages.paths import next_page_text
from tests.fakes.images import SECRET, accepted_images, picture, refused_images
from tests.fakes.outside import FakeClock
from tests.support.browser import ACCOUNT, FakeBrowser
from tests.support.builders import BASE_URL, Answer, Api, run_sql

PROFILE: Final = f"{ACCOUNT}/profile"
UPLOAD: Final = f"{PROFILE}/picture"
API: Final = "/api/user/picture"
SIZES: Final = "select octet_length(small), octet_length(large) from images"


@pytest.fixture
async def token(api: Api, user: Account) -> str:
    access_token: str = (await api.login()).json["access_token"]
    return access_token


async def put(api: Api, token: str, file: bytes, kind: str = "image/png") -> Answer:
    return await api.call("PUT", API, raw=file, token=token, headers={"Content-Type": kind})


async def stored_picture(pool: Pool) -> str | None:
    [(url,)] = await run_sql(pool, "select picture from users")
    return None if url is None else str(url)


async def load(app: QuartTrio, path: str, **headers: str) -> tuple[int, Headers, bytes]:
    response = await app.test_client().get(path, headers=headers)
    return response.status_code, response.headers, await response.get_data(as_text=False)


async def test_an_uploaded_picture_is_shown_and_can_be_removed(browser: FakeBrowser, app: QuartTrio, pool: Pool) -> None:
    answer = await browser.upload(UPLOAD, PROFILE, picture(size=(600, 400)))
    assert "Picture saved." in await next_page_text(browser, answer)
    url = await stored_picture(pool)
    assert url is not None
    assert re.fullmatch(rf"{BASE_URL}/images/[\w-]{{43}}/256", url)
    page = (await browser.open(PROFILE)).text
    path = url.removeprefix(BASE_URL)
    assert f'<img class="uploaded" src="{path}"' in page
    assert f'<img class="avatar" src="{path.removesuffix("256")}64"' in page, "in the head of the page"
    assert url not in page, "an uploaded picture has no address in the form"
    status, headers, content = await load(app, path)
    with Image.open(BytesIO(content)) as image:
        assert (status, image.format, image.size) == (200, "PNG", (256, 256))
    assert headers["Content-Security-Policy"] == "default-src 'none'; sandbox"
    assert (headers["Content-Type"], headers["Cache-Control"]) == ("image/png", "private, max-age=86400, immutable")
    assert (await load(app, path, **{"If-None-Match": headers["ETag"]}))[0] == 304
    await browser.submit(PROFILE, PROFILE, name="Ada", picture="")
    assert await stored_picture(pool) == url, "the other fields of the profile leave it alone"
    answer = await browser.submit(f"{UPLOAD}/remove", PROFILE)
    assert "Picture removed." in await next_page_text(browser, answer)
    assert await stored_picture(pool) is None
    assert [(await load(app, each))[0] for each in (path, "/images/x/64", path.replace("256", "512"))] == [404] * 3


async def test_another_picture_replaces_an_uploaded_one(api: Api, token: str, app: QuartTrio, pool: Pool, clock: FakeClock) -> None:
    first = (await put(api, token, picture())).json["picture"]
    second = (await put(api, token, picture(size=(50, 50)))).json["picture"]
    assert first != second
    assert [(await load(app, each.removeprefix(BASE_URL)))[0] for each in (first, second)] == [404, 200]
    await api.patch("/api/user", {"picture": "https://images.example.com/ada.png"}, token=token)
    assert await run_sql(pool, SIZES) == []
    await put(api, token, picture())
    assert (await api.delete(API, token=token)).status == 204
    assert await run_sql(pool, SIZES) == []
    assert (await api.get("/api/user", token=token)).json["picture"] is None


@pytest.mark.slow
async def test_hostile_files_change_nothing(api: Api, token: str, pool: Pool, clock: FakeClock) -> None:
    before = (await put(api, token, picture())).json["picture"]
    findings = []
    for name, (content, reason) in refused_images().items():
        clock.advance(timedelta(seconds=5))
        kind = "image/jpeg" if "jpeg" in name else "image/webp" if "webp" in name else "image/png"
        answer = await put(api, token, content, kind)
        if answer.status != 400 or reason not in answer.json["error"]:
            findings.append((name, answer.status, answer.text))
    assert not findings
    assert await stored_picture(pool) == before
    assert len(await run_sql(pool, "select 1 from audit_log where action = 'user.updated'")) <= 1


@pytest.mark.slow
async def test_only_pixels_are_kept(browser: FakeBrowser, app: QuartTrio, pool: Pool, clock: FakeClock) -> None:
    for name, content in accepted_images().items():
        clock.advance(timedelta(seconds=5))
        assert (await browser.upload(UPLOAD, PROFILE, content, name="x.html", kind="text/html")).status == 303, name
        [(small, large)] = await run_sql(pool, "select small, large from images")
        assert SECRET not in small + large
        for each in (small, large):
            with Image.open(BytesIO(each)) as image:
                assert (image.format, image.info) == ("PNG", {})


async def test_a_refused_file_is_explained_beside_its_field(browser: FakeBrowser, pool: Pool) -> None:
    answer = await browser.upload(UPLOAD, PROFILE, b"<svg/>", name="logo.svg", kind="image/svg+xml")
    assert answer.status == 400
    assert 'id="image-error">This file is not a PNG, JPEG or WebP image. Open the image in another program' in answer.text
    assert "at most 200 KB and 4,000,000 pixels" in answer.text
    assert "No file was sent" in (await browser.upload(UPLOAD, PROFILE, b"")).text
    assert (await browser.submit(UPLOAD, PROFILE)).status == 400, "a form without a file"
    assert await run_sql(pool, SIZES) == []


async def test_the_content_type_must_be_that_of_the_file(api: Api, token: str) -> None:
    for kind in ("text/html", "application/json", "image/svg+xml", "image/gif", "multipart/form-data; boundary=x"):
        answer = await put(api, token, picture(), kind)
        assert (answer.status, answer.json["error"][:46]) == (415, "Send the file itself as the body, with the con"), kind
    answer = await put(api, token, picture(), "image/webp")
    assert (answer.status, answer.json["error"][:44]) == (400, "The file is an image of another type than it")


@pytest.mark.parametrize("edge", [{"rate_limit_factor": 1.0}], indirect=True)
async def test_uploads_are_limited(api: Api, token: str) -> None:
    answers = [(await put(api, token, b"x")).status for _ in range(IMAGE_UPLOAD.burst + 1)]
    assert answers == [*([400] * IMAGE_UPLOAD.burst), 429]


async def test_malformed_forms_with_files_are_refused(browser: FakeBrowser, app: QuartTrio) -> None:
    two = picture() + b'\r\n--limit\r\nContent-Disposition: form-data; name="image"; filename="b"\r\n\r\n' + picture()
    assert "with one file" in (await browser.upload(UPLOAD, PROFILE, two)).text
    many = {f"field{number}": "x" for number in range(20)}
    assert (await browser.upload(UPLOAD, PROFILE, picture(), **many)).status in (400, 413)
    assert (await browser.upload(PROFILE, PROFILE, picture())).status == 415, "a form without a file field"


async def test_the_picture_goes_with_the_account(api: Api, token: str, pool: Pool, user: Account) -> None:
    await put(api, token, picture())
    export = (await api.get(f"/api/privacy/export/{user.id}", token=token)).json
    assert export["picture_file"].startswith("data:image/png;base64,")
    assert (await api.delete("/api/user", token=token)).status == 200
    assert await run_sql(pool, SIZES) == []
