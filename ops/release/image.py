"""A container image, from Debian's packages and the archive's files. No image registry and no daemon is needed."""

import shutil
from pathlib import Path
from typing import Final

from ops.release import bill
from ops.release.archive import compressed
from ops.release.debian import ARCHITECTURES
from ops.release.source import ROOT, Source
from ops.release.wheels import POSTGRESQL, run

_FILES: Final = ROOT / "ops/image"
_SUITE: Final = "trixie"
# The packages that the archive's command needs. mmdebstrap adds their dependencies.
_PACKAGES: Final = ("base-files", "ca-certificates", "coreutils", "dash", "grep", "python3")
# The archive has more packages than `fill` leaves in the image.
_REMOVED: Final = (f"{POSTGRESQL.replace('-', '_')}-", "pip-")
_WITHOUT: Final = ("/usr/share/doc/*", "/usr/share/info/*", "/usr/share/locale/*", "/usr/share/man/*")


def build(source: Source, machine: str, archive: Path, work: Path, output: Path) -> Path:
    """Build the image with the files in the folder `archive`, and return its path. The kernel must run programs for this kind of machine.

    It is in the format of `docker save`, because OCI's own format has no health check.
    """
    architecture = ARCHITECTURES[machine]
    context, packed = work / f"image-{machine}", work / f"image-{machine}.tar"
    context.mkdir()
    shutil.copy(_FILES / "Dockerfile", context)
    options = (
        "--quiet",
        f"--arch={architecture}",
        "--variant=extract",
        f"--include={','.join(_PACKAGES)}",
        '--aptopt=Acquire::Languages "none"',
        *(f"--dpkgopt=path-exclude={pattern}" for pattern in _WITHOUT),
        "--dpkgopt=path-include=/usr/share/doc/*/copyright",
        f"--extract-hook={_FILES / 'fill'}",
        "--skip=output/dev",
    )
    described = work / f"image-bill-{machine}"
    described.mkdir()
    [wheel] = (archive / "wheels").glob("gatehouse-*.whl")
    packages = [path for path in sorted((archive / "wheels").iterdir()) if path != wheel and not path.name.startswith(_REMOVED)]
    (described / "LICENSES.txt").write_text(bill.licenses(packages))
    (described / "sbom.cdx.json").write_text(bill.sbom(source, wheel, packages))
    environment = {"GATEHOUSE_ARCHIVE": str(archive), "GATEHOUSE_BILL": str(described), "GATEHOUSE_MACHINE": machine}
    run(source, "mmdebstrap", *options, _SUITE, context / "root.tar", **environment)
    # The storage is below `work`, so that the build leaves nothing on the machine.
    storage = ("--root", work / f"storage-{machine}", "--runroot", work / f"run-{machine}", "--storage-driver", "vfs")
    name = f"gatehouse:{source.version}"
    labels = {"title": "Gatehouse", "version": source.version, "revision": source.revision, "licenses": "Apache-2.0"}
    labelled = [argument for key, value in labels.items() for argument in ("--label", f"org.opencontainers.image.{key}={value}")]
    form = ("--arch", architecture, "--format", "docker", "--timestamp", str(source.committed_at), "--isolation", "chroot")
    run(source, "buildah", *storage, "build", *form, *labelled, "--tag", f"docker-archive:{packed}:{name}", context)
    target = output / f"gatehouse-{source.version}-image-{architecture}.tar.gz"
    with packed.open("rb") as image, compressed(target, source, level=1) as file:
        shutil.copyfileobj(image, file, 1024 * 1024)
    return target
