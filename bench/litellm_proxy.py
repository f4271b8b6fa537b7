"""The litellm proxy as a baseline: installed into a throw-away environment, started in front of the scripted provider.

In: a version. Out: a `Started`, or `CannotInstall` where the package index lacks something of it.
"""

from __future__ import annotations

import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import orjson

from bench.acompletion_relay import OFFLINE
from bench.processes import Started, environment, free_port, stop

_NOT_THESE = "!=1.82.7,!=1.82.8,!=1.107.*"
"""Compromised releases."""
_INSTALL_S = 900.0
_START_S = 120.0
_LOOK_AGAIN_S = 0.1


class CannotInstall(Exception):
    """The litellm proxy cannot be installed here; the message says why."""


def install(folder: Path, version: str) -> Path:
    """Make an environment with the litellm proxy in it; takes minutes.

    Args:
        folder: Where; made.
        version: Of litellm.

    Returns:
        The proxy's command.

    Raises:
        CannotInstall: pip did not manage.
    """
    python = folder / "bin" / "python"
    requirement = f"litellm[proxy]=={version},{_NOT_THESE}"
    try:
        subprocess.run([sys.executable, "-m", "venv", folder], check=True, capture_output=True, text=True)
        subprocess.run(
            [python, "-m", "pip", "--disable-pip-version-check", "install", "-q", requirement],
            check=True, capture_output=True, text=True, timeout=_INSTALL_S,
        )  # fmt: skip
    except subprocess.CalledProcessError as error:
        raise CannotInstall(_reason(error.stderr)) from error
    except subprocess.TimeoutExpired as error:
        raise CannotInstall(f"pip was not done after {_INSTALL_S:.0f} s") from error
    return folder / "bin" / "litellm"


def _reason(stderr: str) -> str:
    """pip's last word, unless it names a host: that is nobody's business in a table of results."""
    errors = [line.removeprefix("ERROR: ") for line in stderr.splitlines() if line.startswith("ERROR: ")]
    return errors[-1] if errors and "://" not in errors[-1] else "pip failed"


@contextmanager
def litellm_proxy(command: Path, folder: Path, upstream: str) -> Iterator[Started]:
    """The litellm proxy with one model, `scripted`; no key, no database, no callbacks of its user's.

    Args:
        command: As `install` returned it.
        folder: For its config and log.
        upstream: The provider, without a path.
    """
    model = {"model": "openai/scripted", "api_base": f"{upstream}/v1", "api_key": "none"}
    config = {
        "model_list": [{"model_name": "scripted", "litellm_params": model}],
        "litellm_settings": {"telemetry": False},
    }
    path, errors, port = folder / "litellm_proxy.yaml", folder / "litellm_proxy.log", free_port()
    path.write_bytes(orjson.dumps(config))  # JSON is YAML
    address = f"http://127.0.0.1:{port}"
    with (
        errors.open("wb") as log,
        subprocess.Popen(
            [command, "--config", path, "--host", "127.0.0.1", "--port", str(port)],
            cwd=folder, env={**environment(), **OFFLINE}, stdin=subprocess.DEVNULL, stdout=log, stderr=log,
        ) as process,
    ):  # fmt: skip
        try:
            _until_alive(address, process, errors)
            yield Started(address, process.pid, errors)
        finally:
            stop(process)


def _until_alive(address: str, process: subprocess.Popen[bytes], errors: Path) -> None:
    deadline = time.monotonic() + _START_S
    while time.monotonic() < deadline and process.poll() is None:
        try:
            with urllib.request.urlopen(f"{address}/health/liveliness", timeout=_START_S) as response:
                if response.status == 200:
                    return
        except OSError:
            time.sleep(_LOOK_AGAIN_S)
    raise RuntimeError(f"the litellm proxy did not start:\n{errors.read_text(encoding='utf-8')[-2000:]}")
