"""Make recorded results fit to be committed: ``python asv_benches/trim.py``, after ``make bench``.

Names of files and environments then say which Python it was, not where it lies.
"""

import json
import platform
from pathlib import Path

RESULTS = Path(__file__).with_name("results")
NAME = f"existing-python{platform.python_version()}"


def trim(path: Path) -> None:
    """Rewrite one file of results under a name without paths."""
    kept = json.loads(path.read_text("utf-8"))
    kept["env_name"] = NAME
    kept["python"] = platform.python_version()
    kept["params"]["python"] = kept["python"]
    kept["env_vars"] = {}
    path.unlink()
    target = path.with_name(f"{kept['commit_hash'][:8]}-{NAME}.json")
    target.write_text(json.dumps(kept, separators=(",", ":")) + "\n", "utf-8")


for found in RESULTS.glob("*/*-existing-py_*.json"):
    trim(found)
