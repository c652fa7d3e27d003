"""Uploaded images: hostile files are refused before or while they are decoded, and nothing but pixels comes out."""

import resource
import time
from io import BytesIO

import pytest
from PIL import Image

from adapters.images import PillowImages
from core.kernel.errors import Invalid
from core.kernel.images import (
    LARGE,
    MAX_IMAGE_BYTES,
    SMALL,
    ImageTooManyPixels,
    ImageType,
    ImageTypeMismatch,
    NewImage,
    check_header,
)
from tests.fakes.images import SECRET, accepted_images, picture, png, refused_images


async def reencode(content: bytes, *, is_square: bool = False) -> NewImage:
    return await PillowImages("https://sso.example").reencode(content, check_header(content), is_square=is_square)


def size_of(content: bytes) -> tuple[int, int]:
    with Image.open(BytesIO(content)) as image:
        assert (image.format, image.info, getattr(image, "n_frames", 1)) == ("PNG", {}, 1)
        image.load()
        return image.size


@pytest.mark.slow
async def test_hostile_files_are_refused_with_a_reason() -> None:
    findings = []
    for name, (content, reason) in refused_images().items():
        try:
            await reencode(content)
        except Invalid as refusal:
            if reason not in refusal.message:
                findings.append((name, refusal.message))
        else:
            findings.append((name, "accepted"))
    assert not findings


@pytest.mark.slow
async def test_only_pixels_come_out() -> None:
    findings = []
    for name, content in accepted_images().items():
        assert len(content) <= MAX_IMAGE_BYTES, name
        image = await reencode(content)
        small, large = size_of(image.small), size_of(image.large)
        if max(small) > SMALL or max(large) > LARGE or SECRET in image.small + image.large:
            findings.append((name, small, large))
    assert not findings


@pytest.mark.slow
async def test_memory_and_time_are_bounded() -> None:
    """The limits are far above what a busy machine needs, and far below what the bombs need."""
    files = [*(content for content, _ in refused_images().values()), *accepted_images().values()]
    await reencode(picture())  # loads the library
    before, start = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, time.thread_time()
    for content in files:
        try:
            await reencode(content)
        except Invalid:
            continue
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 120_000  # KB
    assert time.thread_time() - start < 5


def test_the_size_is_read_before_anything_is_decoded() -> None:
    for format_, type_ in (("PNG", ImageType.PNG), ("JPEG", ImageType.JPEG), ("WEBP", ImageType.WEBP)):
        for option in ("lossless", "progressive"):
            header = check_header(picture(format_, (123, 45), "RGB", **{option: True}), type_.value)
            assert (header.type, header.width, header.height) == (type_, 123, 45)
    transparent = check_header(picture("WEBP", (123, 45), "RGBA"))
    assert (transparent.width, transparent.height) == (123, 45)
    with pytest.raises(ImageTooManyPixels):
        check_header(png(4_000_001, 1, pixels=b""))
    with pytest.raises(ImageTypeMismatch):
        check_header(picture("PNG"), ImageType.JPEG.value)


async def test_pictures_are_squares_and_logos_keep_their_shape() -> None:
    assert size_of((await reencode(picture(size=(900, 300)), is_square=True)).large) == (256, 256)
    assert size_of((await reencode(picture(size=(900, 300)), is_square=True)).small) == (64, 64)
    assert size_of((await reencode(picture(size=(900, 300)))).large) == (256, 85)
    assert size_of((await reencode(picture(size=(40, 20)), is_square=True)).large) == (20, 20)  # never enlarged


async def test_a_picture_is_turned_as_its_camera_says() -> None:
    exif = Image.Exif()
    exif[0x0112] = 6
    assert size_of((await reencode(picture("JPEG", (200, 100), exif=exif))).large) == (100, 200)
