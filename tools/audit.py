"""Compare requirements.lock and torch's version with the known vulnerabilities of PyPI, where that can be reached.

    make audit

The exit code is 1 if a package has a known vulnerability, 0 if none has, or if nobody could be asked, which it says.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).parents[1]
_SECONDS = 300


def main() -> int:
    locked = re.sub(r" *\\\n    --hash=\S+", "", (ROOT / "requirements.lock").read_text())
    torch = (ROOT / "constraints.txt").read_text()
    with tempfile.TemporaryDirectory() as folder:
        packages = Path(folder) / "packages.txt"
        packages.write_text(f"{locked}\n{torch}")
        command = [sys.executable, "-m", "pip_audit", "--no-deps", "--disable-pip", "--progress-spinner", "off"]
        try:
            done = subprocess.run(
                [*command, "-f", "json", "-r", str(packages)],
                capture_output=True,
                text=True,
                timeout=_SECONDS,
                check=False,
            )
            asked = json.loads(done.stdout)["dependencies"]
        except (subprocess.TimeoutExpired, ValueError):
            print("not audited: nobody answers")
            return 0
    answered = [each for each in asked if "skip_reason" not in each]
    if not answered:
        print(f"not audited: the index could not be asked about any of {len(asked)} packages")
        return 0
    bad = [each for each in answered if each["vulns"]]
    for each in bad:
        print(f"{each['name']} {each['version']}: {', '.join(fault['id'] for fault in each['vulns'])}")
    print(f"{len(answered)} of {len(asked)} packages audited, {len(bad)} with known vulnerabilities")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
