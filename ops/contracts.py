"""An import-linter contract: every third-party library is imported only from the packages that are its home."""

import sys

from grimp import ImportGraph
from importlinter import Contract, ContractCheck, fields, output


class LibraryHomes(Contract):
    """Every library is imported only from its home packages. `homes` has lines such as "library, library: package, package".

    A library that is not listed may be imported nowhere, unless it belongs to the standard library. The built-in
    contract type `protected` does this for a single library. But it refuses libraries that no module imports yet, and
    it allows unlisted libraries.
    """

    homes: list[str] = fields.ListField(subfield=fields.StringField())  # type: ignore[assignment]  # the base class swaps in the value

    def check(self, graph: ImportGraph, verbose: bool) -> ContractCheck:
        homes: dict[str, list[str]] = {}
        for line in self.homes:
            libraries, _, packages = line.partition(":")
            for library in libraries.split(","):
                homes[library.strip()] = [package.strip() for package in packages.split(",")]

        strays: list[tuple[str, str, int]] = []
        for library in sorted(module for module in graph.modules if graph.is_module_squashed(module)):
            name = library.partition(".")[0]
            if name in sys.stdlib_module_names:
                continue
            for importer in sorted(graph.find_modules_that_directly_import(library)):
                if not any(importer == home or importer.startswith(f"{home}.") for home in homes.get(name, [])):
                    details = graph.get_import_details(importer=importer, imported=library)
                    strays.extend((importer, library, detail["line_number"]) for detail in details)
        return ContractCheck(kept=not strays, metadata={"strays": strays, "homes": homes})

    def render_broken_contract(self, check: ContractCheck) -> None:
        for importer, library, line in check.metadata["strays"]:
            home = ", ".join(check.metadata["homes"].get(library, [])) or "not listed in pyproject.toml"
            output.print_error(f"{importer} (line {line}) imports {library}; its home: {home}")
        output.new_line()
