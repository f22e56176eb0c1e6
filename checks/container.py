"""The Dockerfile, built and run without a registry and without a daemon (`make test-container`, as root).

Debian's packages stand in for the base image: debootstrap makes a file system with Python and its headers, buildah
builds the Dockerfile on it, and podman runs the image as docs/container.md says: read-only, without capabilities, as
its own user. What pip needs of this machine to reach an index is mounted for the build, and is not in the image.
"""

import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
import urllib.request
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
BUILD = ROOT / "build" / "container"
SUITE = "trixie"
PACKAGES = "python3,python3-venv,libpython3-dev,ca-certificates"
PORT = 18_412
STORAGE = ("--root", str(BUILD / "storage"), "--runroot", str(BUILD / "run"), "--storage-driver", "vfs")
READY_S = 60.0
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


def in_container(data: str, *words: str) -> list[str]:
    """Return the command that runs words in the image, as docs/container.md says."""
    safe = ("--read-only", "--tmpfs", "/tmp", "--cap-drop", "ALL", "--security-opt", "no-new-privileges")
    here = ("--network", "host", "--cgroups", "disabled", "--env", f"DEFERKIT_PORT={PORT}")
    return ["podman", *STORAGE, "run", "--rm", *here, *safe, "--volume", f"{data}:/data", *words]


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


def wait_until_healthy(health: list[str], name: str) -> float:
    """Run the health check of the image in the container until it succeeds; return the seconds that took."""
    begin = time.perf_counter()
    while time.perf_counter() - begin < READY_S:
        if run("podman", *STORAGE, "exec", name, *health, check=False).returncode == 0:
            return time.perf_counter() - begin
        time.sleep(0.5)
    sys.exit("the health check never succeeded")


def try_image() -> None:
    """Make a key, serve, decide a task, and look at what the process may do."""
    told = json.loads(run("podman", *STORAGE, "image", "inspect", "deferkit").stdout)[0]
    health = told["Healthcheck"]["Test"][1:]
    with tempfile.TemporaryDirectory() as data:
        os.chown(data, 10_001, 10_001)
        made = run(*in_container(data, "deferkit", "keys", "create", "--scopes", "decide,observe,admin"))
        key = made.stdout.split()[0]
        command = in_container(data, "--name", "deferkit-check", "deferkit")
        with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as served:
            try:
                ready_s = wait_until_healthy(health, "deferkit-check")
                budget = {"cost": {"total": 10, "horizon": 100, "max_cost": 1}}
                policy = {"name": "mails", "features": 2, "budget": budget}
                assert call("POST", "/v1/policies", key, policy)[0] == 201
                task = {"task": "a", "context": [0.6, 0.8]}
                assert call("POST", "/v1/policies/mails/decisions", key, task)[0] == 201
                probe = "import os; print(os.getuid(), os.access('/', os.W_OK), os.access('/data', os.W_OK))"
                seen = run("podman", *STORAGE, "exec", "deferkit-check", "python", "-c", probe).stdout.split()
                assert seen == ["10001", "False", "True"], seen
                begin = time.perf_counter()
            finally:
                run("podman", *STORAGE, "stop", "--time", "25", "deferkit-check", check=False)
            served.wait(30)
        assert sorted(path.name for path in Path(data).iterdir())[0] == "deferkit.db"
        print(f"healthy after {ready_s:.1f} s, decides over HTTP, runs as 10001, writes to /data only;", end=" ")
        print(f"stopped in {time.perf_counter() - begin:.1f} s; image {told['Size'] / 1e6:.0f} MB")


def main() -> None:
    """Check, build, run."""
    check_rules()
    text = (ROOT / "Dockerfile").read_text()
    tag = re.search(r"^ARG PYTHON=(\S+)$", text, flags=re.MULTILINE)
    assert tag is not None
    base = f"docker.io/library/python:{tag.group(1)}"
    base_image(base)
    print(f"the Dockerfile builds on Debian's {SUITE} in {build_image(base):.0f} s")
    try_image()


if __name__ == "__main__":
    main()
