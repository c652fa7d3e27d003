"""QR codes, as SVG."""

import io

import segno


def qr_svg(content: str, title: str) -> str:
    """An SVG document that a page may also have within it. It loads nothing, scales to whatever size it is given, and is black on white
    whatever the colours around it, for cameras take only that well. To a screen reader it is an image of the name `title`."""
    written = io.BytesIO()
    segno.make(content, error="m", micro=False).save(
        written, kind="svg", xmldecl=False, svgclass=None, lineclass=None, omitsize=True, light="#fff", title=title, nl=False
    )
    return written.getvalue().decode().replace("<svg ", '<svg role="img" ', 1)
