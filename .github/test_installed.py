"""Run the tests of a checkout on the topkopt that is installed.

    python .github/test_installed.py CHECKOUT [options of pytest]

works in any folder. The checkout is last in the path of modules: only `reference` is found there.
"""

import sys
from pathlib import Path

import pytest

import topkopt


def main(checkout: Path, options: list[str]) -> int:
    """Return the exit code of pytest."""
    if Path(topkopt.__file__).is_relative_to(checkout / "topkopt"):
        sys.exit(f"this is not an installation, but the source tree: {topkopt.__file__}")
    topkopt.show_config()
    sys.path.append(str(checkout))
    settings = ["-c", str(checkout / "pyproject.toml"), "--rootdir", str(checkout)]
    tests = [checkout / name for name in ("tests", "README.md", "reference/README.md")]
    return pytest.main([*settings, *options, *map(str, tests), "--pyargs", "topkopt"])


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]).resolve(), sys.argv[2:]))
