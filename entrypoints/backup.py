"""`gatehouse backup`: create, verify and restore backups. docs/adr/0022 explains the format."""

import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from secrets import token_urlsafe
from typing import Final

import trio
from pydantic import SecretStr, TypeAdapter, ValidationError

from adapters.clock import SystemClock
from adapters.crypto import vault
from adapters.postgres import backup
from adapters.postgres.backup import BACKUP_FILE
from adapters.postgres.engine import embedded
from adapters.postgres.engine.migrate import migrate
from adapters.prometheus import metrics_directory
from core.accounts.model.accounts import new_account
from core.authentication.tokens import signing_keys
from core.kernel.causes import SYSTEM
from core.kernel.values import Email
from core.maintenance import housekeeping
from entrypoints import adapters_of_settings, addresses, logs, wiring
from entrypoints.adapters_of_settings import key_file
from entrypoints.addresses import embedded_data
from entrypoints.http.app import build_routes
from entrypoints.settings import Settings, SettingsInvalid
from entrypoints.version import VERSION

KEYS_FILE: Final = "encryption-keys"
SIGN_IN_ADDRESS: Final = Email("backup-verify@gatehouse.invalid")

_manifest: Final = TypeAdapter(backup.Manifest)


def create(settings: Settings, directory: Path, keys_dir: Path | None) -> backup.Manifest:
    """Write a backup to `directory`, and the encryption keys to `keys_dir`. The service can run."""
    adapters_of_settings.vault_of(settings)
    keys = adapters_of_settings.known_keys(settings) or ""
    adapters_of_settings.check_database_address(settings)
    if settings.database_url is None and not embedded.exists(embedded_data(settings)):
        raise backup.BackupError(f"There is no database in {embedded_data(settings)}, so there is nothing to back up. Check SSO_DATA_DIR.")
    if keys_dir is not None and _contains(directory, keys_dir):
        raise backup.BackupError("The keys must be apart from the backup. Choose directories that do not contain each other.")
    with _system_errors(), ExitStack() as stack:  # the keys appear first, and then the backup
        target = stack.enter_context(backup.new_directory(directory))
        if keys_dir is not None:
            backup.write_file(stack.enter_context(backup.new_directory(keys_dir)) / KEYS_FILE, f"{keys}\n".encode())
        with addresses.open_database(settings) as conninfo:
            manifest = backup.export(
                conninfo, target, version=VERSION, created_at=SystemClock().now(), key_checks=vault.make_key_checks(keys)
            )
        backup.write_file(target / BACKUP_FILE, _manifest.dump_json(manifest, indent=2) + b"\n")
    return manifest


def restore(settings: Settings, directory: Path, keys_dir: Path | None) -> backup.Manifest:
    """Restore a backup into the configured database, which must be empty."""
    adapters_of_settings.check_database_address(settings)
    with _system_errors(), ExitStack() as undo:
        manifest = _read(directory)
        migrations = backup.check_migrations(manifest)
        configured = adapters_of_settings.known_keys(settings)
        keys = _fitting_keys(manifest, configured, _source(settings)) if configured else _keys_in(keys_dir, manifest)
        backup.check_files(directory, manifest)
        settings.data_dir.mkdir(parents=True, exist_ok=True, mode=0o755)
        if configured is None:
            # Before the rows: without the keys, the next start would generate new keys.
            if adapters_of_settings.store_keys(key_file(settings), keys) != keys:
                raise backup.BackupError(
                    f"A service has just created {key_file(settings)}. Stop it, remove its keys and its data, and try again."
                )
            undo.callback(key_file(settings).unlink)
        with addresses.open_database(settings) as conninfo:
            backup.load(conninfo, directory, manifest, migrations)
            undo.pop_all()
            trio.run(migrate, conninfo)
    return manifest


def verify(settings: Settings, directory: Path, keys_dir: Path | None) -> tuple[backup.Manifest, int]:
    """Restore a backup into a temporary database, decrypt all secrets, and sign in. Return how many secrets it has, too."""
    with _system_errors():
        manifest = _read(directory)
        migrations = backup.check_migrations(manifest)
        configured = adapters_of_settings.known_keys(settings) if keys_dir is None else None
        keys = _fitting_keys(manifest, configured, _source(settings)) if configured else _keys_in(keys_dir, manifest)
        backup.check_files(directory, manifest)
        with embedded.scratch() as database, metrics_directory(), tempfile.TemporaryDirectory(prefix="gatehouse-scratch-") as data_dir:
            backup.load(database.conninfo, directory, manifest, migrations)
            temporary = settings.model_copy(
                update={
                    "database_url": SecretStr(database.conninfo),
                    "encryption_keys": SecretStr(keys),
                    "data_dir": Path(data_dir),
                    "smtp_url": None,
                }
            )
            return manifest, trio.run(_decrypt_and_sign_in, temporary, database.conninfo)


async def _decrypt_and_sign_in(settings: Settings, conninfo: str) -> int:
    """Migrate the restored database, decrypt all secrets, and sign a new user in. Return how many secrets it has.

    No actor runs, so no email and no delivery is sent.
    """
    logs.configure(settings.log_format, "error")
    await migrate(conninfo)
    async with wiring.wire(settings, addresses.base_url(settings), conninfo) as wired:
        secrets = await housekeeping.check_sealed(wired.ports)
        await signing_keys.load(wired.ports)
        await _sign_in(settings, wired)
        return secrets


async def _sign_in(settings: Settings, wired: wiring.Wired) -> None:
    password = token_urlsafe()
    account = new_account(SIGN_IN_ADDRESS, await wired.ports.passwords.hash(password), wired.ports.clock.now(), verified=True)
    async with wired.ports.storage.transaction(by=SYSTEM) as tx:
        await tx.accounts.add(account)
    client = wiring.application(settings, addresses.base_url(settings), wired, build_routes()).test_client()
    signed_in = await client.post("/api/auth/login", json={"email": str(SIGN_IN_ADDRESS), "password": password})
    answer = await signed_in.get_json()
    if signed_in.status_code == 200:
        user = await client.get("/api/user", headers={"Authorization": f"Bearer {answer['access_token']}"})
        answer = await user.get_json()
        if user.status_code == 200 and answer["email"] == SIGN_IN_ADDRESS:
            return
    raise backup.BackupError(f"All rows were restored, but a user cannot sign in: {answer}.")


def _read(directory: Path) -> backup.Manifest:
    path = directory / BACKUP_FILE
    try:
        return _manifest.validate_json(path.read_bytes(), strict=True)
    except (FileNotFoundError, NotADirectoryError):
        raise backup.BackupError(f"{directory} is not a complete backup: it has no {BACKUP_FILE}.") from None
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        field = ".".join(map(str, first["loc"]))
        raise backup.BackupError(
            f"{path} was changed or is damaged: {field + ': ' if field else ''}{first['msg']}. Use another backup."
        ) from None


def _source(settings: Settings) -> str:
    return "SSO_ENCRYPTION_KEYS" if settings.encryption_keys is not None else str(key_file(settings))


def _keys_in(keys_dir: Path | None, manifest: backup.Manifest) -> str:
    if keys_dir is None:
        ids = ", ".join(manifest.key_checks)
        raise backup.BackupError(
            f"This backup needs the encryption keys {ids}. Set SSO_ENCRYPTION_KEYS, or use --keys with their directory."
        )
    try:
        return _fitting_keys(manifest, (keys_dir / KEYS_FILE).read_text(encoding="ascii").strip(), str(keys_dir))
    except (FileNotFoundError, NotADirectoryError, UnicodeDecodeError):
        raise backup.BackupError(
            f"{keys_dir} has no file {KEYS_FILE} with encryption keys. Use the directory that backup create wrote."
        ) from None


def _fitting_keys(manifest: backup.Manifest, keys: str, source: str) -> str:
    """Return the keys if they decrypt the backup's secrets."""
    try:
        missing = vault.keys_that_do_not_fit(keys, manifest.key_checks)
    except ValueError as error:
        raise SettingsInvalid(f"{source} is not usable: {error}") from None
    if missing or not manifest.key_checks:
        ids = ", ".join(missing)
        raise backup.BackupError(
            f"The encryption keys in {source} do not fit this backup: {ids or 'its keys'} are missing or different. "
            "Use the keys that the service had at the time of the backup."
        )
    return keys


def _contains(one: Path, other: Path) -> bool:
    one, other = one.resolve(), other.resolve()
    return one.is_relative_to(other) or other.is_relative_to(one)


@contextmanager
def _system_errors() -> Iterator[None]:
    """Turn file system errors, such as a full disk, into sentences."""
    try:
        yield
    except OSError as error:
        place = f"{error.filename}: " if error.filename else ""
        raise backup.BackupError(f"The files of the backup cannot be used: {place}{error.strerror or error}.") from None
