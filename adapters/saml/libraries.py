"""The promise that the two libraries which share documents share their libxml2.

As a program, `python -m adapters.saml.libraries`, it keeps that promise or says in a sentence why it cannot.
"""

import sys


class XmlLibrariesDisagree(Exception):
    """lxml and xmlsec do not load the same libxml2; the text says what to do."""


def check_libraries() -> str:
    """The version of libxml2 that both load. Raises XmlLibrariesDisagree: documents passed between two versions crash (security.md P-2)."""
    from lxml import etree

    try:
        import xmlsec
    except ImportError as error:  # newer releases of xmlsec look for themselves, and refuse to be imported
        raise XmlLibrariesDisagree(f"lxml and xmlsec do not go together ({error}). Install the versions of the lock file.") from None
    versions = etree.LIBXML_VERSION, xmlsec.get_libxml_version()
    if versions[0] != versions[1]:
        shown = " and ".join(".".join(map(str, version)) for version in versions)
        raise XmlLibrariesDisagree(f"lxml and xmlsec load different versions of libxml2 ({shown}). Install the versions of the lock file.")
    return ".".join(map(str, versions[0]))


if __name__ == "__main__":
    try:
        check_libraries()
    except XmlLibrariesDisagree as error:
        sys.exit(str(error))
