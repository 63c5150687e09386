"""`thence setup --service` with a real systemd: the units start, work, and go again.

The systemd of a user runs in namespaces of its own, so that the one of this machine, if there is
one, hears nothing of it.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.agents.transcripts import Script
from tests.memory import logs

SYSTEMD = Path("/lib/systemd/systemd")
THENCE = Path(sys.executable).parent / "thence"
MAX_MEMORY_KB = 80_000_000 >> 10
"""Memory that the viewer may use at rest, after it has imported sessions."""
IS_POSSIBLE = (
    os.geteuid() == 0 and SYSTEMD.exists() and bool(shutil.which("unshare") and shutil.which("ip"))
)

STORY = """
ip link set lo up
mount -t tmpfs tmpfs /run
mkdir -p /run/systemd/system "$XDG_RUNTIME_DIR"
chmod 700 "$XDG_RUNTIME_DIR"
"$SYSTEMD" --user --log-target=null &

ask() { systemctl --user "$@" 2>/dev/null; }
both() { echo "$(ask is-active "$1") $(ask is-enabled "$1")"; }
stored() { "$THENCE" ls --json | grep -c '"session_uid"'; }
memory_kb() { awk '/VmRSS/ {print $2}' "/proc/$(ask show -p MainPID --value thence-serve)/status"; }
wait_for() {
    for _ in $(seq 300); do if eval "$1"; then return; fi; sleep 0.1; done
    echo "never: $1"
}

wait_for '[ "$(ask is-system-running)" = running ]'
"$THENCE" setup --yes --service >/dev/null || echo "setup failed: $?"
echo "service $(both thence-serve)"
echo "timer $(both thence-sweep.timer)"
wait_for '[ "$(stored)" = 1 ]'
cp "$HOME"/later/*.jsonl "$LOGS"
wait_for '[ "$(stored)" = 2 ]'
echo "stored $(stored)"
ask start thence-sweep.service
echo "sweep $(ask show -p Result --value thence-sweep.service)"
"$THENCE" doctor --json | grep -q 'as thence setup left them' && echo "doctor agrees"

lock="$HOME/.thence/serve.lock"
pid() { ask show -p MainPID --value thence-serve; }
doctor_says() { "$THENCE" doctor --json | grep -q "$1" && echo "doctor says $1"; }
first=$(pid)
sed -i 's/from thence.__main__/import thence; thence.__version__ = "9.9.9"; &/' "$LAUNCHER"
wait_for 'grep -q 9.9.9 "$lock"'
doctor_says 'systemctl --user restart thence-serve'  # any command writes the launcher anew
wait_for '[ -s "$lock" ] && ! grep -q 9.9.9 "$lock"'
echo "upgraded twice: $(ask is-active thence-serve), $([ "$first" = "$(pid)" ] && echo same pid)"

mkdir "$UNITS/thence-serve.service.d"
printf '[Service]\nRestartSec=100ms\n' >"$UNITS/thence-serve.service.d/quick.conf"
ask daemon-reload
ask stop thence-serve
doctor_says 'thence-serve.service is stopped'
"$THENCE" serve --no-open --json >"$HOME/foreground" &
wait_for '[ -s "$HOME/foreground" ]'
ask start thence-serve
wait_for '[ "$(ask show -p NRestarts --value thence-serve)" -gt 1 ]'
kill $!
wait_for '! flock -n -s "$lock" true'
echo "took over: $(ask is-active thence-serve)"
rm -r "$UNITS/thence-serve.service.d"
ask disable thence-sweep.timer
doctor_says 'thence-sweep.timer is disabled'

wait_for '[ "$(memory_kb)" -lt "$MAX_MEMORY_KB" ]'
"$THENCE" setup --remove --yes >/dev/null || echo "removal failed: $?"
echo "after $(ask is-active thence-serve) $(ask is-active thence-sweep.timer)"
find "$HOME/.config" -name 'thence*' -printf 'left %p'
"""


@pytest.mark.slow
@pytest.mark.skipif(not IS_POSSIBLE, reason="needs systemd, ip, and root to give it namespaces")
def test_service_and_timer_run_under_a_real_systemd(tmp_path: Path) -> None:
    """What is written while the viewer runs is stored by it; it stays small; all of it goes.

    It goes on with the new program after an upgrade, and takes over from another viewer.
    """
    home, later = tmp_path / "home", tmp_path / "home" / "later"
    first, second = (logs.script(number, 3) for number in (1, 2))
    logs.write(home / ".claude", first)
    _write(later, second)
    env = {
        "PATH": os.environ["PATH"],
        "HOME": str(home),
        "SHELL": "/bin/bash",
        "XDG_RUNTIME_DIR": "/run/user/0",
        "LOGS": str(logs.path(home / ".claude", first).parent),
        "LAUNCHER": str(home / ".thence/bin/thence"),
        "UNITS": str(home / ".config/systemd/user"),
        "SYSTEMD": str(SYSTEMD),
        "THENCE": str(THENCE),
        "MAX_MEMORY_KB": str(MAX_MEMORY_KB),
    }
    namespaces = ["--mount", "--net", "--pid", "--fork", "--mount-proc", "--kill-child"]
    ran = subprocess.run(
        ["unshare", *namespaces, "bash", "-c", STORY],
        env=env,
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )

    assert [
        "service active enabled",
        "timer active enabled",
        "stored 2",
        "sweep success",
        "doctor agrees",
        "doctor says systemctl --user restart thence-serve",
        "upgraded twice: active, same pid",
        "doctor says thence-serve.service is stopped",
        "took over: active",
        "doctor says thence-sweep.timer is disabled",
        "after inactive inactive",
    ] == ran.stdout.splitlines(), ran


def _write(folder: Path, script: Script) -> None:
    """Write a log into a folder of its own."""
    logs.write(folder.parent / "other", script)
    shutil.copytree(logs.path(folder.parent / "other", script).parent, folder)
