"""Check that session proofs are read through a view: `python -m ops.checks.session_proofs`.

A proof from an organization's connection counts in that organization alone. So no code may read all proofs in a session at once. The type
`SessionProofs` hides them from all functions but the views in `core/kernel/proofs.py`. This check keeps the type in place:

- A field `proofs` has the type `SessionProofs`. Only the classes in VIEWS, which hold a view or a sign-in in progress, have `Proofs`.
- Only the modules in STORING call `every_proof`, and nothing casts to `Proofs`.
- Only the modules in SQL name the column `proofs` of a session.
"""

import ast
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

LAYERS: Final = ("core", "ports", "adapters", "actors", "entrypoints")
KERNEL: Final = "core/kernel/proofs.py"
VIEWS: Final = {"Facts", "Flow", "IdToken", "PolicyFacts", "VerifiedSignIn"}
STORING: Final = {
    KERNEL,
    "adapters/postgres/authentication/sign_in_proofs.py",
    "core/accounts/session_proofs.py",  # removes proofs by factors that have left the account
    "core/kernel/sign_in_policy/silent_sign_ins.py",  # adds a proof that makes the session no newer
}
SQL: Final = {
    "adapters/postgres/authentication/personal_tokens.py",  # copies them into the token's session
    "adapters/postgres/authentication/refresh_tokens.py",
    "adapters/postgres/authentication/session_sign_ins.py",  # removes an ended connection's proof
    "adapters/postgres/authentication/sign_in_proofs.py",
}
_COLUMN: Final = re.compile(r"\b[a-z]\.proofs\b")


def find_faults(path: str, text: str) -> Iterator[str]:
    """Yield a sentence about every place in a module that can read all session proofs."""
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.ClassDef) and node.name not in VIEWS:
            for field in node.body:
                if isinstance(field, ast.AnnAssign) and ast.unparse(field.target) == "proofs" and _last_name(field.annotation) == "Proofs":
                    yield f"{path}:{field.lineno}: {node.name}.proofs has the type Proofs. Use SessionProofs, and read it with a view."
        elif isinstance(node, ast.Call) and path not in STORING and _last_name(node.func).endswith("every_proof"):
            yield f"{path}:{node.lineno}: every_proof is for storage only. Use seen_in, in_session or proofs_at."
        elif isinstance(node, ast.Call) and path != KERNEL and _last_name(node.func) == "cast" and "Proofs" in ast.unparse(node.args[0]):
            yield f"{path}:{node.lineno}: a cast gives all proofs of a session. Use seen_in, in_session or proofs_at."
        elif isinstance(node, ast.Constant) and _names_column(path, node.value):
            yield f"{path}:{node.lineno}: a statement names the column proofs. Use proof_columns."


def _last_name(node: ast.expr) -> str:
    return ast.unparse(node).rpartition(".")[2]


def _names_column(path: str, value: object) -> bool:
    return isinstance(value, str) and path.startswith("adapters/") and path not in SQL and _COLUMN.search(value) is not None


if __name__ == "__main__":
    faults = [
        fault
        for layer in LAYERS
        for path in sorted(Path(layer).rglob("*.py"))
        if "proof" in (text := path.read_text()).lower()  # all faults name proofs, and parsing takes long
        for fault in find_faults(str(path), text)
    ]
    for fault in faults:
        print(fault)
    sys.exit(bool(faults))
