"""`./run release`: see `./run release --help`."""

import platform
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import click

from ops.release import archive, changes, chart, debian, image, source, wheels

_FOLDER = click.Path(file_okay=False, path_type=Path)


@click.command(epilog="Example: ./run release --output dist")
@click.option("--output", type=_FOLDER, default=Path("dist"), show_default=True, help="The folder of the files.")
@click.option("--revision", help="Build this commit instead of the checkout, which must have no changes.")
@click.option("--machine", "machines", type=click.Choice(wheels.MACHINES), multiple=True, help="Only the files for this machine.")
@click.option("--wheels", "kept", type=_FOLDER, help="A folder that keeps the wheels, so that the next build downloads only others.")
@click.option(
    "--image", "with_image", is_flag=True, help="Also the image for containers, for the machines of --machine, or else for this kind."
)
def main(output: Path, revision: str | None, machines: tuple[str, ...], kept: Path | None, *, with_image: bool) -> None:
    """Build the wheel, the Helm chart, an archive and a Debian package per kind of machine, the changes, and the checksums.

    The same revision always gives the same bytes. The image has Debian's current packages, and needs buildah, mmdebstrap and binutils.
    """
    try:
        output.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise click.ClickException(f"The folder {output} cannot be made: {error.strerror}. Name another one with --output.") from None
    try:
        with tempfile.TemporaryDirectory(prefix="gatehouse-release-") as name:
            work = Path(name)
            exported = source.export(revision, work / "source")
            wheel = wheels.build(exported, work, output)

            def pack(machine: str) -> list[Path]:
                folder = archive.assemble(exported, machine, wheel, work, kept)
                packed = [archive.pack(exported, folder, output), debian.pack(exported, machine, folder, work, output)]
                if with_image and machine in (machines or (platform.machine(),)):
                    packed.append(image.build(exported, machine, folder, work, output))
                return packed

            with ThreadPoolExecutor() as threads:  # the threads wait for pip, and for the network
                packed = threads.map(pack, machines or wheels.MACHINES)
            files = [
                wheel,
                changes.write(exported, output),
                chart.pack(exported, work, output),
                *(path for paths in packed for path in paths),
            ]
            files.append(archive.write_sums(files, output))
    except source.ReleaseError as error:
        raise click.ClickException(str(error)) from None
    for path in files:
        click.echo(f"{path.stat().st_size / 1e6:8.1f} MB  {path}")


main()
