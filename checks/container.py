"""The Dockerfile, built and run without a registry and without a daemon (`make test-container`, as root).

Debian's packages stand in for the base image: debootstrap makes a file system with Python and its headers, and buildah
builds the Dockerfile on it. The image runs in namespaces of its own, as docs/container.md says: read-only but for
/data and /tmp, without capabilities, as its own user. What pip needs of this machine to reach an index is mounted for
the build, and is not in the image. Then the wheel of `make dist`, if there is one, decides in Debian's Python.
"""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import urllib.request
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
BUILD = ROOT / "build" / "container"
SUITE = "trixie"
PACKAGES = "python3,python3-venv,libpython3-dev,ca-certificates"
PORT = 18_412
STORAGE = ("--root", str(BUILD / "storage"), "--runroot", str(BUILD / "run"), "--storage-driver", "vfs")
READY_S, STOP_S = 60.0, 30.0
ENTER = """
mount --make-rprivate / && mkdir -p "$1/data" && mount --bind "$1" "$1" && mount -t proc proc "$1/proc" &&
mount -t tmpfs tmpfs "$1/tmp" && mount --rbind /dev "$1/dev" && mount --bind "$2" "$1/data" &&
mount -o remount,bind,ro "$1" || exit 1
root=$1; shift 2
exec setpriv --no-new-privs chroot --userspec=10001:10001 "$root" "$@"
"""  # capabilities go with the change of the user
RULES = {
    "a pinned base image": r"^ARG PYTHON=3\.\d+-slim-\w+$",
    "two stages": r"^FROM .* AS build$(.|\n)*^FROM ",
    "no root": r"^USER \d+:\d+$",
    "one volume": r'^VOLUME \["/data"\]$',
    "a health check": r"^HEALTHCHECK ",
    "no shell form": r'^ENTRYPOINT \["deferkit"\]$',
}


def run(*command: str, check: bool = True) -> subprocess.CompletedProcess[str]:
    done = subprocess.run(command, check=False, text=True, capture_output=True, cwd=ROOT)
    if check and done.returncode:
        sys.exit(f"{' '.join(command)} failed:\n{done.stdout[-4000:]}\n{done.stderr[-4000:]}")
    return done


def check_rules() -> None:
    """Raise if the Dockerfile lacks what every such file should have."""
    text = (ROOT / "Dockerfile").read_text()
    for rule, pattern in RULES.items():
        assert re.search(pattern, text, flags=re.MULTILINE), f"the Dockerfile lacks {rule}"
    installs = re.findall(r"apt-get install.*", text)
    assert all("--no-install-recommends" in line for line in installs), "an install without --no-install-recommends"
    assert text.count("rm -rf /var/lib/apt/lists/*") == len(installs), "lists of packages are left in a layer"


def base_image(name: str) -> None:
    """Make the base image of Debian's packages, once."""
    base = BUILD / "base"
    if not (base / "done").exists():
        shutil.rmtree(base, ignore_errors=True)
        run("debootstrap", "--variant=minbase", f"--include={PACKAGES}", SUITE, str(base))
        (base / "usr/bin/python").symlink_to("python3")
        (base / "done").touch()
    if run("buildah", *STORAGE, "inspect", "--type", "image", name, check=False).returncode:
        container = run("buildah", *STORAGE, "from", "scratch").stdout.strip()
        run("buildah", *STORAGE, "add", "--quiet", container, str(base), "/")
        run("buildah", *STORAGE, "commit", "--quiet", "--rm", container, name)


def mounts_for_pip() -> list[str]:
    """Return what pip reads here: its configuration, certificates, and folders of packages that it names."""
    listed = run(sys.executable, "-m", "pip", "config", "list").stdout
    folders = re.findall(r"(?:file://)?(/[\w./-]+?)(?:/simple)?(?=[\s'])", listed)
    paths = dict.fromkeys(["/etc/pip.conf", *folders])
    return [f"--volume={path}:{path}:ro" for path in paths if Path(path).exists()]


def build_image(base: str) -> float:
    """Build the Dockerfile; return the seconds that it took."""
    begin = time.perf_counter()
    where = ("--isolation", "chroot", "--pull-never", "--format", "docker", "--tag", "deferkit", *mounts_for_pip())
    run("buildah", *STORAGE, "build", *where, f"--build-arg=PYTHON={base.partition(':')[2]}", ".")
    return time.perf_counter() - begin


def image_root() -> tuple[Path, dict[str, Any]]:
    """Return the file system of the image, and its configuration."""
    container = run("buildah", *STORAGE, "from", "--pull-never", "deferkit").stdout.strip()
    root = Path(run("buildah", *STORAGE, "mount", container).stdout.strip())
    told = json.loads(run("buildah", *STORAGE, "inspect", "--type", "image", "deferkit").stdout)
    return root, told["Docker"]["config"]


def within(root: Path, data: Path, *words: str, **environment: str) -> list[str]:
    """Return the command that runs words in a file system that is read-only, as the user of the image."""
    given = [f"{name}={value}" for name, value in environment.items()]
    enter = ("unshare", "--mount", "--pid", "--fork", "--kill-child", "sh", "-c", ENTER, "sh", str(root), str(data))
    return [*enter, "/usr/bin/env", "--ignore-environment", *given, *words]


def call(method: str, path: str, key: str, body: object | None = None) -> tuple[int, object]:
    """Call the service."""
    request = urllib.request.Request(
        f"http://127.0.0.1:{PORT}{path}",
        method=method,
        data=None if body is None else json.dumps(body).encode(),
        headers={"authorization": f"Bearer {key}", "content-type": "application/json"},
    )
    with urllib.request.urlopen(request, timeout=10) as reply:
        return reply.status, json.loads(reply.read() or b"null")


def wait_until_healthy(health: list[str]) -> float:
    """Run the health check of the image until it succeeds; return the seconds that took."""
    begin = time.perf_counter()
    while time.perf_counter() - begin < READY_S:
        if run(*health, check=False).returncode == 0:
            return time.perf_counter() - begin
        time.sleep(0.5)
    sys.exit("the health check never succeeded")


def stop(served: subprocess.Popen[bytes]) -> None:
    """Send SIGTERM to what runs in the namespaces: `unshare` itself ignores it."""
    children = Path(f"/proc/{served.pid}/task/{served.pid}/children").read_text().split()
    for child in children:
        os.kill(int(child), signal.SIGTERM)
    served.wait(STOP_S)


def try_image(data: Path) -> None:
    """Make a key, serve, decide a task, and look at what the process may do."""
    root, told = image_root()
    environment = dict(each.split("=", 1) for each in told["Env"]) | {"DEFERKIT_PORT": str(PORT)}
    assert told["User"] == "10001:10001"
    assert list(told["Volumes"]) == ["/data"]

    def command(*words: str) -> list[str]:
        return within(root, data, *words, **environment)

    entry = told["Entrypoint"]
    key = run(*command(*entry, "keys", "create", "--scopes", "decide,observe,admin")).stdout.split()[0]
    with subprocess.Popen(
        command(*entry, *told["Cmd"]), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    ) as served:
        try:
            ready_s = wait_until_healthy(command(*told["Healthcheck"]["Test"][1:]))
            budget = {"cost": {"total": 10, "horizon": 100, "max_cost": 1}}
            policy = {"name": "mails", "features": 2, "budget": budget}
            assert call("POST", "/v1/policies", key, policy)[0] == 201
            task = {"task": "a", "context": [0.6, 0.8]}
            assert call("POST", "/v1/policies/mails/decisions", key, task)[0] == 201
            probe = "import os; print(os.getuid(), *(os.access(path, os.W_OK) for path in ('/', '/opt', '/data')))"
            assert run(*command("python", "-c", probe)).stdout.split() == ["10001", "False", "False", "True"]
        finally:
            begin = time.perf_counter()
            stop(served)
    stopped_s = time.perf_counter() - begin
    written = sorted(path.name for path in data.iterdir())
    assert written[0] == "deferkit.db", written
    size = run("du", "--summarize", "--block-size=1000000", str(root / "opt/deferkit")).stdout.split()[0]
    print(f"healthy after {ready_s:.1f} s, decides over HTTP as user 10001, writes to /data only: {written};")
    print(f"stopped in {stopped_s:.1f} s; /opt/deferkit, what the image adds to its base: {size} MB")
    run("buildah", *STORAGE, "rm", "--all")


def try_wheel(wheel: Path, data: Path) -> None:
    """Install a wheel for Debian's Python in an empty environment, and decide with it."""
    root = BUILD / "base"
    path = {"PATH": "/usr/bin:/bin"}
    run(*within(root, data, "python3", "-m", "venv", "--without-pip", "--symlinks", "/data/env", **path))
    (packages,) = (data / "env/lib").glob("python3.*/site-packages")
    version = packages.parent.name.removeprefix("python")
    for_it = ("--python-version", version, "--platform", "manylinux_2_28_x86_64", "--platform", "linux_x86_64")
    pip = (sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--only-binary", ":all:")
    run(*pip, *for_it, "--target", str(packages), str(wheel))
    shutil.copy(ROOT / "checks/decide.py", data)
    said = run(*within(root, data, "/data/env/bin/python", "-I", "-W", "error", "/data/decide.py", **path)).stdout
    print(f"{wheel.name} in Debian's Python {version}: {said.strip()}")


def main() -> None:
    """Check, build, run."""
    check_rules()
    text = (ROOT / "Dockerfile").read_text()
    tag = re.search(r"^ARG PYTHON=(\S+)$", text, flags=re.MULTILINE)
    assert tag is not None
    base = f"docker.io/library/python:{tag.group(1)}"
    base_image(base)
    print(f"the Dockerfile builds on Debian's {SUITE} in {build_image(base):.0f} s")
    with tempfile.TemporaryDirectory() as folder:
        for name in ("service", "wheel"):
            (Path(folder) / name).mkdir()
            os.chown(Path(folder) / name, 10_001, 10_001)
        Path(folder).chmod(0o755)
        try_image(Path(folder) / "service")
        for wheel in sorted((ROOT / "dist").glob("*.whl")):
            try_wheel(wheel, Path(folder) / "wheel")


if __name__ == "__main__":
    main()
