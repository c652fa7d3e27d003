"""The check that lxml and xmlsec load the same libxml2.

`python -m adapters.saml.libraries` runs the check and exits with an error message if they do not.
"""

import subprocess
import sys


class XmlLibrariesDisagree(Exception):
    """lxml and xmlsec load different libxml2 versions. The message says what to do."""


def check_libraries() -> str:
    """Return the libxml2 version that lxml and xmlsec load.

    Documents passed between two versions crash (security P-2).

    Raises: XmlLibrariesDisagree.
    """
    from lxml import etree

    try:
        import xmlsec
    except ImportError as error:  # newer xmlsec releases check this themselves when they are imported
        raise XmlLibrariesDisagree(f"lxml and xmlsec are not compatible ({error}). Install the versions of the lock file.") from None
    versions = etree.LIBXML_VERSION, xmlsec.get_libxml_version()
    if versions[0] != versions[1]:
        shown = " and ".join(".".join(map(str, version)) for version in versions)
        raise XmlLibrariesDisagree(f"lxml and xmlsec load different versions of libxml2 ({shown}). Install the versions of the lock file.")
    return ".".join(map(str, versions[0]))


class LibraryCheck:
    """The same check in a separate process, because the two libraries would cost every worker 13 MB."""

    def __init__(self) -> None:
        self._process = subprocess.Popen([sys.executable, "-m", __name__], stderr=subprocess.PIPE, text=True)  # noqa: S603 - our own module

    def finish(self) -> None:
        """Wait for the result.

        Raises: XmlLibrariesDisagree.
        """
        _, message = self._process.communicate()
        if self._process.returncode != 0:
            raise XmlLibrariesDisagree(message.strip())


if __name__ == "__main__":
    try:
        check_libraries()
    except XmlLibrariesDisagree as error:
        sys.exit(str(error))
