"""Images for uploads: good and hostile images."""

import struct
import zlib
from collections.abc import Mapping
from io import BytesIO
from typing import Any, Final

from PIL import Image

SECRET: Final = b"<script>alert(1)</script>"  # hidden in a hostile file; it must not come back


def picture(format_: str = "PNG", size: tuple[int, int] = (300, 200), mode: str = "RGB", **options: Any) -> bytes:
    """Return a picture with a gradient."""
    red = Image.linear_gradient("L").resize(size)
    output = BytesIO()
    Image.merge("RGB", (red, red.rotate(90).resize(size), red)).convert(mode).save(output, format_, **options)
    return output.getvalue()


def chunk(name: bytes, content: bytes) -> bytes:
    """Return a PNG chunk."""
    return struct.pack(">I", len(content)) + name + content + struct.pack(">I", zlib.crc32(name + content))


def png(width: int, height: int, *chunks: bytes, pixels: bytes | None = None, is_deep: bool = False) -> bytes:
    """Return a PNG with 1 or 64 bits per pixel, and with further chunks. By default all pixels are black."""
    header = struct.pack(">IIBBBBB", width, height, *((16, 6) if is_deep else (1, 0)), 0, 0, 0)
    rows = zlib.compress(bytes((width * 8 if is_deep else (width + 7) // 8) + 1) * height, 9) if pixels is None else pixels
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + b"".join(chunks) + chunk(b"IDAT", rows) + chunk(b"IEND", b"")


def with_text(content: bytes) -> bytes:
    """Return a PNG with this content in its text, color profile and EXIF chunks."""
    return png(
        *(8, 8),
        chunk(b"tEXt", b"Comment\0" + content),
        chunk(b"iCCP", b"profile\0\0" + zlib.compress(content)),
        chunk(b"eXIf", content),
    )


def animation(format_: str, frames: int, size: tuple[int, int] = (16, 16)) -> bytes:
    """Return an animation. Its first frame is black."""
    pages = [Image.new("RGB", size, (number % 256, number // 256, 0)) for number in range(frames)]
    output = BytesIO()
    pages[0].save(output, format_, save_all=True, append_images=pages[1:])
    return output.getvalue()


def jpeg_with_scans(count: int) -> bytes:
    """Return a progressive JPEG in which a scan is repeated."""
    content = picture("JPEG", (64, 64), progressive=True)
    start = content.rindex(b"\xff\xda")
    scan = content[start : content.rindex(b"\xff\xd9")]
    return content[:start] + scan * count + b"\xff\xd9"


BOMB: Final = zlib.compress(bytes(50_000_000), 9)  # 50 KB that stand for 50 MB


def refused_images() -> Mapping[str, tuple[bytes, str]]:
    """Return files that are refused, with a part of the reason."""
    whole = picture("PNG")
    jpeg = picture("JPEG")
    webp = picture("WEBP")
    canvas = picture("WEBP", exif=Image.Exif(), mode="RGBA", icc_profile=b"profile")
    return {
        "empty": (b"", "No file was sent"),
        "one byte": (b"\x89", "not a PNG, JPEG or WebP"),
        "too large": (whole + bytes(200_001 - len(whole)), "more than 200 KB"),
        "svg": (b'<svg xmlns="http://www.w3.org/2000/svg"><script>alert(1)</script></svg>', "not a PNG, JPEG or WebP"),
        "html": (b"<!doctype html><script>alert(1)</script>", "not a PNG, JPEG or WebP"),
        "gif": (picture("GIF"), "not a PNG, JPEG or WebP"),
        "gifar": (picture("GIF") + b"PK\x03\x04", "not a PNG, JPEG or WebP"),
        "bmp": (picture("BMP", (20, 20)), "not a PNG, JPEG or WebP"),
        "ico": (picture("ICO", (16, 16)), "not a PNG, JPEG or WebP"),
        "tiff": (picture("TIFF", (20, 20)), "not a PNG, JPEG or WebP"),
        "pdf": (b"%PDF-1.7\n", "not a PNG, JPEG or WebP"),
        "zip": (b"PK\x03\x04" + bytes(100), "not a PNG, JPEG or WebP"),
        "wave": (b"RIFF\x10\x00\x00\x00WAVEfmt ", "not a PNG, JPEG or WebP"),
        "bomb of pixels": (png(30_000, 30_000, pixels=BOMB), "more than 4,000,000 pixels"),
        "huge header": (png(2**31 - 1, 2**31 - 1, pixels=b""), "more than 4,000,000 pixels"),
        "no pixels": (png(0, 10), "incomplete or damaged"),
        "webp with more pixels than its header says": (canvas[:24] + bytes(6) + canvas[30:], "incomplete or damaged"),
        "truncated png": (whole[: len(whole) // 2], "incomplete or damaged"),
        "truncated jpeg": (jpeg[: len(jpeg) // 2], "incomplete or damaged"),
        "truncated webp": (webp[: len(webp) // 2], "incomplete or damaged"),
        "header of a png alone": (whole[:12], "incomplete or damaged"),
        "header of a jpeg alone": (jpeg[:4], "incomplete or damaged"),
        "header of a webp alone": (webp[:14], "incomplete or damaged"),
        "jpeg without a frame": (b"\xff\xd8\xff\xe0\x00\x02\xff\xd9", "incomplete or damaged"),
        "jpeg with many scans": (jpeg_with_scans(60), "incomplete or damaged"),
        "bomb of text": (png(8, 8, chunk(b"zTXt", b"Comment\0\0" + BOMB)), "incomplete or damaged"),
        "wrong checksum": (whole[:29] + bytes(4) + whole[33:], "incomplete or damaged"),
    }


def accepted_images() -> Mapping[str, bytes]:
    """Return files that are accepted, and hide SECRET or more than an image."""
    exif = Image.Exif()
    exif[0x010E] = SECRET.decode()
    return {
        "html behind a png": picture("PNG") + SECRET,
        "zip behind a png": picture("PNG") + b"PK\x05\x06" + bytes(18) + SECRET,
        "script behind a jpeg": picture("JPEG") + b"*/=" + SECRET,
        "comment of a jpeg": picture("JPEG", comment=SECRET),
        "exif of a jpeg": picture("JPEG", exif=exif),
        "exif of a webp": picture("WEBP", exif=exif),
        "chunks of a png": with_text(SECRET),
        "bomb in the color profile": png(8, 8, chunk(b"iCCP", b"profile\0\0" + zlib.compress(SECRET + bytes(900_000), 9))),
        "many chunks": png(8, 8, *[chunk(b"tEXt", b"a\0" + SECRET)] * 3000),
        "animated png": animation("PNG", 40) + SECRET,
        "animated webp": animation("WEBP", 300),
        "largest": png(2000, 2000),
        "largest with deep pixels": png(2000, 2000, is_deep=True),
        "largest jpeg": picture("JPEG", (2000, 2000), quality=20),
        "one pixel": picture("PNG", (1, 1)),
        "wide": picture("PNG", (3000, 2)),
        "palette": picture("PNG", mode="P"),
        "gray": picture("JPEG", mode="L"),
        "cmyk": picture("JPEG", mode="CMYK"),
        "transparent": picture("WEBP", mode="RGBA"),
    }
