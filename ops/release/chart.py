"""The Helm chart, with the release's version."""

import shutil
from pathlib import Path

from ops.release import archive
from ops.release.source import ROOT, Source


def pack(source: Source, work: Path, output: Path) -> Path:
    """Write the chart as Helm reads it, and return its path."""
    folder = work / "chart/gatehouse"
    shutil.copytree(ROOT / "ops/helm/gatehouse", folder)
    about = folder / "Chart.yaml"
    about.write_text(about.read_text().replace("0.0.0", source.version))
    return archive.pack(source, folder, output, f"gatehouse-{source.version}.tgz")
