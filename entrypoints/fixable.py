"""The command errors that the operator can fix. They are shown as a sentence, without a traceback."""

from typing import Final

from adapters.postgres.backup import BackupError
from adapters.postgres.engine.embedded import EmbeddedError
from adapters.postgres.engine.migrate import MigrationRefused
from adapters.saml.libraries import XmlLibrariesDisagree
from core.kernel import errors
from entrypoints.http.edge.protocol.listening import BindError
from entrypoints.settings import SettingsInvalid
from ports.crypto import SealBroken

FIXABLE: Final = (
    SettingsInvalid,
    BackupError,
    BindError,
    EmbeddedError,
    MigrationRefused,
    SealBroken,
    XmlLibrariesDisagree,
    errors.StorageDown,
    errors.Refusal,
)
