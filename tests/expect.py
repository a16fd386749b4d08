"""What several test files expect in the same way."""

import re
import subprocess
import sys

import pytest


def raises(error, *fragments):
    """Expect an error whose message holds the fragments in this order."""
    return pytest.raises(error, match="(?s)" + ".*".join(re.escape(str(f)) for f in fragments))


def run_python(code):
    return subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    ).stdout.strip()
