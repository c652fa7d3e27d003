"""The wheel's command `gatehouse`.

Gatehouse's top-level packages are in the folder `application`. So an environment that other projects share gets no
package that is called `core`.
"""

import os
import sys
from pathlib import Path


def main() -> None:
    """Run the command line. Data is in the user's own folder by default, because the present folder can be any."""
    application = str(Path(__file__).with_name("application"))
    sys.path.insert(0, application)
    # Programs that the service starts need it too.
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, (application, os.environ.get("PYTHONPATH"))))
    os.environ.setdefault("SSO_DATA_DIR", str(_data_folder()))
    from entrypoints.cli import main as run

    run(prog_name=os.environ.get("GATEHOUSE_COMMAND", "gatehouse"))


def _data_folder() -> Path:
    if os.geteuid() == 0:
        return Path("/var/lib/gatehouse")
    return Path(os.environ.get("XDG_DATA_HOME") or Path.home() / ".local/share") / "gatehouse"
