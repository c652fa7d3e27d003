"""A container from the image: a read-only root directory, no capabilities, and no network but its own loopback."""

import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from tests.release.bare_root import ROOT, BareRoot

_DEVICES: Final = ("null", "urandom")


class Container(BareRoot):
    """The image's root directory with the user and the environment in its configuration. Only /tmp and its volumes can be written."""

    def __init__(self, folder: Path, user: str, environment: Mapping[str, str], volumes: Mapping[str, Path]) -> None:
        self._user, self._environment, self._is_sealed = user, environment, False
        super().__init__(folder)
        for name in volumes:
            (self.folder / name).mkdir(parents=True, exist_ok=True)
        for name in _DEVICES:
            (self.folder / "dev" / name).touch()
        binds = [f"mount --bind {source} {ROOT}/{name}" for name, source in volumes.items()]
        mounts = [f"mount --bind /dev/{name} {ROOT}/dev/{name}" for name in _DEVICES]
        read_only = f"mount --rbind {ROOT} {ROOT} && mount -o remount,bind,ro {ROOT}"
        script = " && ".join([*binds, *mounts, f"mount -t tmpfs none {ROOT}/tmp", read_only])  # noqa: S108 - in the container
        subprocess.run([*self._enter, "sh", "-c", script], check=True)
        self._is_sealed = True

    def _is_ready(self) -> bool:
        return self.run("healthcheck", succeeds=False).returncode == 0

    def _command(self, *command: str, user: str | None, **environment: str) -> list[str]:
        if not self._is_sealed:
            return super()._command(*command, user=user, **environment)
        settings = {**self._environment, **environment}
        switch = ["setpriv", "--no-new-privs", "chroot", f"--userspec={self._user}", "--groups=", ROOT]
        return [*self._enter, *switch, "env", "-i", *(f"{name}={value}" for name, value in settings.items()), *command]
