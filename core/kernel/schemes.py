"""URI schemes that no application may register for itself, because a browser, the operating system or a website handles them.

A redirect to such a URI would not reach the application. It could run a script, open a file or start another program.
All other schemes are private-use schemes. RFC 8252 section 7.1 asks for a domain in reverse, with a dot, but known
assistants and editors have schemes such as `cursor`.

Sources: IANA's registry of URI schemes, the safelist for protocol handlers in HTML, and the internal schemes of
Chromium, Firefox, Safari, Android, iOS and Windows.
"""

from typing import Final

_WEB: Final = "http https ws wss ftp ftps gopher"
# These run scripts, or show content without a host, or pages of the browser itself.
_BROWSERS: Final = (
    "about blob cid data feed file filesystem jar javascript jsbin livescript mhtml mid mocha resource vbscript view-source wyciwyg "
    "brave chrome edge opera vivaldi devtools"
)
# Android and iOS read these as commands, or open another application or a store with them.
_PHONES: Final = (
    "android-app app-prefs app-settings content googlechrome googlechromes intent itms itms-apps itms-appss itms-beta itms-services "
    "market package prefs shortcuts workflow"
)
_DESKTOPS: Final = "apple-magnifier applescript hcp help jnlp microsoft-edge mk res search shell shortcut"
# Mail, telephone, chat, maps and calendars. Websites can register themselves for some of them.
_PEOPLE: Final = (
    "bitcoin callto facetime facetime-audio facetime-group fax geo im imap imessage irc irc6 ircs magnet mailto maps matrix message "
    "mms mmsto modem news nntp openpgp4fpr pop pres sip sips skype sms smsto snews tel telprompt tv wais webcal webcals wtai xmpp"
)
_NETWORK: Final = "afp dav davs dict dns git irisbeep ldap ldaps nfs rdp rlogin rsync rtmp rtsp scp sftp smb ssh svn telnet tftp tn3270 vnc"
_NAMES: Final = "did doi info ni nih oid pkcs11 tag urn uuid"  # names of things: nothing opens them
REFUSED: Final = frozenset(" ".join((_WEB, _BROWSERS, _PHONES, _DESKTOPS, _PEOPLE, _NETWORK, _NAMES)).split())
# Windows; browsers' own pages and extensions; macOS; schemes that websites and extensions register.
REFUSED_STARTS: Final = ("ms-", "search-ms", "chrome-", "moz-", "safari-", "edge-", "x-apple", "web+", "ext+")


def is_refused(scheme: str) -> bool:
    """Return whether no application may use this scheme, which is in lower case. A single letter is a drive of Windows."""
    return scheme in REFUSED or scheme.startswith(REFUSED_STARTS) or len(scheme) == 1
