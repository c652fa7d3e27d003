"""QR codes, as SVG."""

import io


def qr_svg(content: str, title: str) -> str:
    """Return a QR code as an SVG document, which can also be embedded in a page.

    The image loads no files and scales to any size. It is always black on white, which cameras read best. Screen
    readers announce it as an image named `title`.
    """
    import segno  # here, because most processes never need its 2 MB

    buffer = io.BytesIO()
    segno.make(content, error="m", micro=False).save(
        buffer, kind="svg", xmldecl=False, svgclass=None, lineclass=None, omitsize=True, light="#fff", title=title, nl=False
    )
    return buffer.getvalue().decode().replace("<svg ", '<svg role="img" ', 1)
