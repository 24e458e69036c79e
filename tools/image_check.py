"""Build the CPU images without a daemon and use them: `make image-check`.

A Debian base is made by debootstrap and given to the Dockerfile as its `BASE`; buildah builds by chroot. Then a policy
is trained and exported in `train-cpu`, served by `serve-cpu` as its user on a read-only root, an episode is played
through it, SIGTERM stops it, and `edge` turns the policy into C and compiles it. Everything is kept in build/images.

What the machine's own pip says of packages (`pip config list`) goes into the builds as a mounted file, into no image.
"""

from __future__ import annotations

import argparse
import contextlib
import functools
import json
import os
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from paddleport import Client
from train.episodes import play

FOLDER = Path("build/images").resolve()
TARGETS = ("serve-cpu", "edge", "train-cpu")
SUITE = "bookworm"
LIMIT_MIB, LIMIT_START = 350, 2.0
TOOLS = ("buildah", "debootstrap", "unshare", "chroot")
STEPS, SEED = 50_000, 1


def main() -> int:
    """Build and check; 0 where everything held, or where the tools are not here, which is said."""
    options = _parse()
    missing = [tool for tool in TOOLS if shutil.which(tool) is None]
    if missing or os.geteuid() != 0:
        why = f"{', '.join(missing)} missing" if missing else "this needs root"
        print(f"image-check: skipped, nothing was built: {why}")
        return 0
    FOLDER.mkdir(parents=True, exist_ok=True)
    report: list[tuple[str, str, bool | None]] = []
    base = _base()
    base_size = _size(base)
    for target in options.target or TARGETS:
        started = time.monotonic()
        if not options.built:
            _build(target, base)
        size = _size(f"paddleport:{target}") - base_size
        within = size <= LIMIT_MIB if target == "serve-cpu" else None
        report.append((f"{target}: MiB unpacked beyond the base", f"{size:.0f}", within))
        report.append((f"{target}: built, s", f"{time.monotonic() - started:.0f}", None))
    models = options.models.resolve() if options.models else _train()
    report += _check_serving(models)
    if not options.target or "edge" in options.target:
        report += _check_edge(models)
    report.append(("base: MiB", f"{base_size:.0f}", None))
    for name, value, held in report:
        print(f"{name:52} {value:>24} {'' if held is None else 'ok' if held else 'FAILED'}")
    return 1 if any(held is False for _, _, held in report) else 0


def _base() -> str:
    """The image of a plain Debian with Python, as `BASE`; and one with pip beside it, as `BUILD_BASE`."""
    root = FOLDER / "rootfs"
    ready = FOLDER / "rootfs.ready"
    if not ready.exists():
        _run("debootstrap", "--variant=minbase", "--include=python3,ca-certificates", SUITE, str(root))
        _run("chroot", str(root), "apt-get", "clean")
        ready.touch()
    if _images("localhost/base"):
        return "localhost/base"
    container = _buildah("from", "scratch")
    _buildah("add", container, str(root), "/")
    _buildah("commit", "--rm", container, "localhost/base")
    container = _buildah("from", "--pull-never", "localhost/base")
    command = "apt-get update -qq && apt-get install -y -qq --no-install-recommends python3-pip python3-venv"
    _buildah("run", "--isolation", "chroot", container, "--", "sh", "-c", command)
    _buildah("commit", "--rm", container, "localhost/build-base")
    return "localhost/base"


def _build(target: str, base: str) -> None:
    volumes = [word for path in _pip_paths() for word in ("--volume", f"{path}:{path}:ro")]
    volumes += ["--volume", f"{_pip_configuration()}:/etc/pip.conf:ro"]
    _buildah(
        *("bud", "--isolation", "chroot", "--format", "docker", "--pull-never", "--target", target, *volumes),
        *("--build-arg", f"BASE={base}", "--build-arg", "BUILD_BASE=localhost/build-base"),
        *("--tag", f"paddleport:{target}", "--file", "Dockerfile", "."),
    )


def _pip_settings() -> dict[str, str]:
    """What pip on this machine goes by, from all its files and the environment; file by file, the last one wins."""
    listed = subprocess.run([sys.executable, "-m", "pip", "config", "list"], capture_output=True, text=True, check=True)
    found = {}
    for line in listed.stdout.splitlines():
        key, _, value = line.partition("=")
        found[key.removeprefix(":env:").removeprefix("global").lstrip(".")] = value.strip("'\"")
    return found


def _pip_configuration() -> Path:
    """The same as one file; without the machine's own constraints, which would stand against ours."""
    lines = [f"{key} = {value}" for key, value in _pip_settings().items() if key != "constraint"]
    path = FOLDER / "pip.conf"
    path.write_text("\n".join(["[global]", *lines, ""]))
    return path


def _pip_paths() -> list[str]:
    """Files and folders of this machine that its pip's settings name."""
    words = [word.removeprefix("file://") for value in _pip_settings().values() for word in value.split()]
    # The pages of an index on disk name its files beside them.
    words = [word.removesuffix("/simple") for word in words]
    return sorted({word for word in words if word.startswith("/") and Path(word).exists()})


def _train() -> Path:
    """A policy trained, quantized and exported by the image train-cpu; its models folder."""
    work = FOLDER / "work"
    shutil.rmtree(work, ignore_errors=True)
    work.mkdir()
    os.chown(work, 10001, 65534)
    for command in (
        f"train --algo ppo --env CartPole-v1 --seed {SEED} --total-steps {STEPS} --run-dir run",
        "quantize run --method ptq",
        "export run --name cartpole --models models",
    ):
        with _container("train-cpu", {"/work": work}, shlex.split(command)) as process:
            if process.wait(timeout=900):
                sys.exit(f"image-check: in train-cpu `paddleport {command}` ended with {process.returncode}")
    return work / "models"


def _check_serving(models: Path) -> list[tuple[str, str, bool | None]]:
    """Start the server from the image, look inside, play an episode, and stop it."""
    port = _free_port()
    given = {"PADDLEPORT_PORT": str(port), "PADDLEPORT_HOST": "127.0.0.1"}
    cache = FOLDER / "cache"
    cache.mkdir(exist_ok=True)
    os.chown(cache, 10001, 65534)
    places = {"/models:ro": models, "/var/cache/paddleport": cache}
    refused = _in_container("serve-cpu", places, ["paddleport", "serve"], {**given, "PADDLEPORT_HOST": "0.0.0.0"})
    report: list[tuple[str, str, bool | None]] = [
        ("without a token: refuses to start", f"exit {refused.returncode}", refused.returncode != 0)
    ]
    report += _look_inside()
    with _container("serve-cpu", places, None, {**given, "PADDLEPORT_INSECURE": "1"}) as process:
        started = time.monotonic()
        url = f"http://127.0.0.1:{port}"
        _until_ready(url, process)
        ready = time.monotonic() - started
        report.append(("serve-cpu: ready after, s", f"{ready:.2f}", ready <= LIMIT_START))
        user = _user_of(process)
        report.append(("serve-cpu: runs as", f"uid {user}", user == 10001))
        with Client(url) as client:
            played = play(lambda obs: client.act_batch("cartpole", obs["obs"]), "CartPole-v1", 1, 7).statistics
        report.append(("serve-cpu: return of an episode", f"{played.mean:.1f}", played.mean >= 475))
        stopping = time.monotonic()
        _signal(process)
        code = process.wait(timeout=30)
        report.append(("serve-cpu: SIGTERM, exit and s", f"{code}, {time.monotonic() - stopping:.2f}", code == 0))
    return report


_INSIDE = """
import importlib.util, json, os, shutil
writable = []
for folder, folders, files in os.walk('/'):
    folders[:] = [name for name in folders if os.path.join(folder, name) not in ('/proc', '/sys', '/dev')]
    for path in [folder, *(os.path.join(folder, name) for name in files)]:
        try: seen = os.lstat(path)
        except OSError: continue
        mine = seen.st_uid == os.getuid() and seen.st_mode & 0o200 or seen.st_mode & 0o002
        if mine and not os.path.islink(path): writable.append(path)
names = ['paddle', 'pip', 'ensurepip', 'paddleslim', 'gymnasium', 'torch']
print(json.dumps({'uid': os.getuid(), 'writable': writable,
    'modules': [name for name in names if importlib.util.find_spec(name)],
    'tools': [name for name in ('pip', 'pip3', 'gcc', 'cc', 'g++', 'make') if shutil.which(name)]}))
"""


def _look_inside() -> list[tuple[str, str, bool | None]]:
    """What the image holds, and what its user may write; by the modes in the image, not by the read-only mount."""
    done = _in_container("serve-cpu", {}, ["python", "-c", _INSIDE], {})
    if done.returncode:
        return [("serve-cpu: look inside", done.stderr.strip()[-80:], False)]
    found = json.loads(done.stdout)
    allowed = ("/tmp", "/var/cache/paddleport")
    beyond = [path for path in found["writable"] if not path.startswith(allowed)]
    held = found["modules"] + found["tools"]
    return [
        ("serve-cpu: Paddle, pip or a compiler within", ", ".join(held) or "none", not held),
        ("serve-cpu: writable beside /tmp and the cache", ", ".join(beyond[:4]) or "none", not beyond),
    ]


def _check_edge(models: Path) -> list[tuple[str, str, bool | None]]:
    """Write the policy as C in the image edge, and compile its self-test there."""
    work = FOLDER / "edge-work"
    shutil.rmtree(work, ignore_errors=True)
    work.mkdir()
    os.chown(work, 10001, 65534)
    places = {"/work": work, "/models:ro": models}
    done = _in_container("edge", places, ["paddleport", "edge", "/models/cartpole", "--out", "c", "--no-measure"], {})
    if done.returncode:
        return [("edge: the policy as C", done.stderr.strip()[-60:], False)]
    compile_and_run = "make --no-print-directory -C c selftest > /tmp/said 2>&1; code=$?; tail -1 /tmp/said; exit $code"
    built = _in_container("edge", places, ["sh", "-c", compile_and_run], {})
    said = built.stdout.strip()
    passed = built.returncode == 0 and said.startswith("PASS: ")
    return [("edge: the policy as C, compiled and checked", "PASS" if passed else said[-24:], passed)]


@contextlib.contextmanager
def _container(
    target: str, places: dict[str, Path], arguments: list[str] | None, environment: dict[str, str] | None = None
) -> Iterator[subprocess.Popen[bytes]]:
    """The image's own entry point, as its own user and environment, on its read-only root; ended on the way out.

    Args:
        target: of the Dockerfile.
        places: folders of this machine by their place in the container; `:ro` behind a place keeps it from writing.
        arguments: instead of the image's command.
        environment: on top of the image's.
    """
    settings = json.loads(_buildah("inspect", "--type", "image", f"paddleport:{target}"))["Docker"]["config"]
    command = [*settings["Entrypoint"], *(settings["Cmd"] if arguments is None else arguments)]
    with _started(target, places, command, settings, environment or {}, None) as process:
        yield process


def _in_container(
    target: str, places: dict[str, Path], command: list[str], environment: dict[str, str]
) -> subprocess.CompletedProcess[str]:
    """Another command than the image's, to its end."""
    settings = json.loads(_buildah("inspect", "--type", "image", f"paddleport:{target}"))["Docker"]["config"]
    with _started(target, places, command, settings, environment, subprocess.PIPE) as process:
        out, err = process.communicate(timeout=300)
    return subprocess.CompletedProcess(command, process.returncode, out.decode(), err.decode())


@contextlib.contextmanager
def _started(
    target: str,
    places: dict[str, Path],
    command: list[str],
    settings: dict[str, Any],
    environment: dict[str, str],
    pipe: int | None,
) -> Iterator[subprocess.Popen[bytes]]:
    container = _buildah("from", "--pull-never", f"paddleport:{target}")
    try:
        root = _buildah("mount", container)
        lines = [f"mount --bind {root} {root}"]
        for place in places:
            (Path(root) / place.removesuffix(":ro").lstrip("/")).mkdir(parents=True, exist_ok=True)
        lines += [f"mount -o remount,ro,bind {root}", f"mount -t tmpfs -o mode=1777 tmpfs {root}/tmp"]
        lines += [f"mount -t proc proc {root}/proc", f"mount --rbind /dev {root}/dev"]
        for place, folder in places.items():
            there = root + place.removesuffix(":ro")
            lines.append(f"mount --bind {shlex.quote(str(folder))} {there}")
            if place.endswith(":ro"):
                lines.append(f"mount -o remount,ro,bind {there}")
        inside = f'cd {shlex.quote(settings["WorkingDir"] or "/")} && exec "$@"'
        user = settings["User"].partition(":")[0] or "0"
        # By its path, since the PATH here is the image's already.
        lines.append(
            f'exec {shutil.which("chroot")} --userspec={user}:65534 {root} sh -c {shlex.quote(inside)} sh "$@"'
        )
        given = dict(line.partition("=")[::2] for line in settings["Env"]) | environment
        # The server is process 1 of its own process space, as in any container.
        process = subprocess.Popen(
            ["unshare", "--mount", "--pid", "--fork", "--kill-child", "sh", "-ec", "\n".join(lines), "sh", *command],
            env=given, stdout=pipe, stderr=pipe,
        )  # fmt: skip
        try:
            yield process
        finally:
            if process.poll() is None:
                process.kill()
                process.wait()
    finally:
        _buildah("rm", container)


def _child_of(process: subprocess.Popen[bytes]) -> int:
    """The container's process 1, as this machine numbers it."""
    return int(Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()[0])


def _user_of(process: subprocess.Popen[bytes]) -> int:
    return Path(f"/proc/{_child_of(process)}").stat().st_uid


def _signal(process: subprocess.Popen[bytes]) -> None:
    os.kill(_child_of(process), signal.SIGTERM)


def _until_ready(url: str, process: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline and process.poll() is None:
        with contextlib.suppress(OSError), urllib.request.urlopen(f"{url}/v2/health/ready", timeout=2):  # noqa: S310
            return
        time.sleep(0.02)
    sys.exit("image-check: the server in serve-cpu did not become ready")


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _size(image: str) -> float:
    """MiB of the unpacked image, as files take disk."""
    container = _buildah("from", "--pull-never", image)
    try:
        root = _buildah("mount", container)
        counted = subprocess.run(["du", "-s", "-k", "-x", root], capture_output=True, text=True, check=True)
        return int(counted.stdout.split()[0]) / 1024
    finally:
        _buildah("rm", container)


def _images(name: str) -> bool:
    return name in _buildah("images", "--format", "{{.Name}}").split()


def _buildah(*arguments: str) -> str:
    storage = ["--root", str(FOLDER / "storage"), "--runroot", str(FOLDER / "state"), "--storage-driver", _driver()]
    return _run("buildah", *storage, *arguments)


@functools.cache
def _driver() -> str:
    """How buildah keeps layers: over one another where such a mount works here, else as whole copies, far slower."""
    kept = [name for name in ("overlay", "vfs") if (FOLDER / "storage" / f"{name}-images").exists()]
    if kept:
        return kept[0]
    with tempfile.TemporaryDirectory(dir=FOLDER) as place:
        for name in ("lower", "upper", "work", "merged"):
            (Path(place) / name).mkdir()
        layers = f"lowerdir={place}/lower,upperdir={place}/upper,workdir={place}/work"
        script = f"mount -t overlay overlay -o {shlex.quote(layers)} {shlex.quote(place)}/merged"
        works = subprocess.run(["unshare", "--mount", "sh", "-c", script], capture_output=True, check=False)
    return "vfs" if works.returncode else "overlay"


def _run(*command: str) -> str:
    """Output of a command; what it says goes to stderr, and a failure ends the check."""
    with (FOLDER / "log.txt").open("ab") as log:
        done = subprocess.run(command, stdout=subprocess.PIPE, stderr=log, check=False)
        log.write(done.stdout)
    if done.returncode:
        sys.exit(f"image-check: failed: {shlex.join(command)[:200]} (build/images/log.txt)")
    return done.stdout.decode().strip()


def _parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else None)
    parser.add_argument("--target", action="append", choices=TARGETS, help="build this one; may be given again")
    parser.add_argument("--models", type=Path, help="serve this models folder, instead of training one in train-cpu")
    parser.add_argument("--built", action="store_true", help="check the images of an earlier run, and build none")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
