"""What can be told without asking anybody: packages, model files, policies, folders, permissions, disk, clock.

In: settings. Out: findings. Nothing is changed.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import stat
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from proxy.api_embedder import ApiEmbedder
from proxy.backup import archive
from proxy.config import Config
from proxy.doctor.finding import Finding, Repair
from proxy.embed import BUILTIN_MODEL, opened
from proxy.errors import EmbedderError, PolicyError
from proxy.policy.load import load as load_policies
from proxy.policy.load import policy_files
from proxy.settings import API_DEADLINE_MS
from proxy.store.data_dir import DATABASE, SECRET, installation

COMPROMISED_LITELLM = ("1.82.7", "1.82.8", "1.107.")
"""Releases that were compromised; one that ends in a dot stands for all that begin so."""
SECRET_BYTES = 32
_CLOSE: Repair = "permissions"
_SUMS = BUILTIN_MODEL.parent / "SHA256SUMS"
_LOW_BYTES = 1 << 30
_LEAST_BYTES = 100 << 20
_LATE = timedelta(days=2)


def litellm_release() -> Finding:
    """Whether the litellm that is installed is one to be trusted."""
    try:
        installed = version("litellm")
    except PackageNotFoundError:
        return Finding("litellm", "broken", "it is not installed", "install Sidemirror anew")
    if is_compromised(installed):
        return Finding(
            "litellm",
            "broken",
            f"{installed} is a compromised release",
            "install Sidemirror anew at once, and replace every key that this machine has seen",
        )
    return Finding("litellm", "ok", installed)


def is_compromised(release: str) -> bool:
    """Whether a litellm release was compromised.

    >>> [is_compromised(release) for release in ("1.82.7", "1.82.70", "1.107.3", "1.110.2")]
    [True, False, True, False]
    """
    return any(release == bad or (bad.endswith(".") and release.startswith(bad)) for bad in COMPROMISED_LITELLM)


def model_files(sums: Path = _SUMS) -> Finding:
    """Whether the shipped model's files are those that were shipped, to the byte.

    Args:
        sums: The figures of the model card, as `sha256sum` writes them; paths in it start at its folder.
    """
    wrong = []
    for line in sums.read_text(encoding="ascii").splitlines():
        wanted, name = line.split(maxsplit=1)
        try:
            with (sums.parent / name).open("rb") as file:
                found = hashlib.file_digest(file, "sha256").hexdigest()
        except OSError as error:
            wrong.append(f"{name} cannot be read ({error.strerror})")
            continue
        if found != wanted:
            wrong.append(f"{name} is not the shipped one")
    if wrong:
        return Finding("model files", "broken", "; ".join(wrong), "install Sidemirror anew")
    return Finding("model files", "ok", f"{BUILTIN_MODEL.name}, as shipped")


def embedder(config: Config) -> tuple[Finding, str | None]:
    """Whether the model that the settings name can be used; an API is asked.

    Returns:
        The finding, and the model's fingerprint where it is known.
    """
    fingerprint = None
    try:
        with opened(config) as model:
            fingerprint = model.fingerprint
            told = f"{fingerprint}, {model.dimension} dimensions"
            if not isinstance(model, ApiEmbedder):
                return Finding("embedder", "ok", told), fingerprint
            started = time.monotonic()
            model.documents(["A question of sidemirror doctor."])
            took_ms = 1000 * (time.monotonic() - started)
    except EmbedderError as error:
        return Finding("embedder", "broken", str(error), "correct embedding in the settings"), fingerprint
    deadline_ms = config.recall.deadline_ms
    told += f": an API, which answered in {took_ms:.0f} ms; each recall asks it, and goes by words where it is late"
    advice = "a model2vec model works on this machine, and offline"
    if deadline_ms < API_DEADLINE_MS:
        advice = f"leave recall.deadline_ms out: it is {deadline_ms}, and {API_DEADLINE_MS} suits an API; or {advice}"
    return Finding("embedder", "warning", told, advice), fingerprint


def policies(config: Config) -> Iterator[Finding]:
    """Whether the policies can be read, examples included."""
    try:
        found = load_policies(config.policies, models=[model.name for model in config.models])
    except PolicyError as error:
        for problem in error.problems:
            yield Finding(
                "policies", "broken", str(problem), "correct the file; 'sidemirror policy check' runs it again"
            )
        return
    count = f"{len(found.files)} files, {len(found.triggers)} rules"
    if all(is_local for _, is_local in policy_files(config.policies)):
        told = (
            f"{count}, all of them in local/: the folder takes the place of the shipped rules, so none of those works"
        )
        yield Finding("policies", "warning", told, "let 'sidemirror init' write the shipped files beside local/")
        return
    yield Finding("policies", "ok", f"{count}, all examples hold")


def permissions(config: Config) -> Iterator[Finding]:
    """Whether others on this machine are kept out, and we are not."""
    data_dir = config.data_dir
    if not data_dir.exists():
        parent = next(path for path in data_dir.parents if path.exists())
        if os.access(parent, os.W_OK | os.X_OK):
            yield Finding("data folder", "ok", f"{data_dir} is made at the first start")
        else:
            yield Finding(
                "data folder", "broken", f"{data_dir} cannot be made in {parent}", "set data_dir, or use --data"
            )
        return
    if not (data_dir.is_dir() and os.access(data_dir, os.R_OK | os.W_OK | os.X_OK)):
        yield Finding("data folder", "broken", f"{data_dir} cannot be written", "check its owner, or set data_dir")
        return
    yield _private("data folder", data_dir, 0o700)
    for name in (SECRET, DATABASE):
        if (data_dir / name).exists():
            yield _private(name, data_dir / name, 0o600)
    yield from _secret(config)


def _private(check: str, path: Path, wanted: int) -> Finding:
    status = path.stat()
    mode, repair = stat.S_IMODE(status.st_mode), _CLOSE
    if status.st_uid != os.geteuid():
        return Finding(check, "warning", f"{path} belongs to another user (uid {status.st_uid})", "chown it to yours")
    if mode & 0o077:
        message = f"{path} has mode {mode:04o}: others can reach it"
        return Finding(check, "warning", message, f"chmod {wanted:o} {path}", repair)
    return Finding(check, "ok", f"{path}, mode {mode:04o}")


def _secret(config: Config) -> Iterator[Finding]:
    path = config.data_dir / SECRET
    if path.exists():
        if path.stat().st_size != SECRET_BYTES:
            yield Finding("secret", "broken", f"{path} is damaged", "restore it from a backup")
    elif (config.data_dir / DATABASE).exists() and config.auth.tenant == "api_key":
        advice = "restore it from a backup: the next start makes another one, and provider keys become other tenants"
        yield Finding("secret", "broken", f"{path} is missing", advice)


def disk_space(config: Config) -> Iterator[Finding]:
    """Whether there is room to write."""
    database = config.data_dir / DATABASE
    needed = database.stat().st_size if database.exists() else 0
    places = {"disk": config.data_dir, **({"backup disk": config.backup.dir} if config.backup.at else {})}
    for check, place in places.items():
        existing = next(path for path in (place, *place.parents) if path.exists())
        free = shutil.disk_usage(existing).free
        message = f"{free / 2**30:.1f} GB free at {existing}"
        if free < _LEAST_BYTES:
            yield Finding(check, "broken", message, "free some space: writes are about to fail")
        elif free < max(_LOW_BYTES, needed):
            yield Finding(check, "warning", message, "free some space")
        else:
            yield Finding(check, "ok", message)


def timezone(config: Config, now: datetime) -> Finding:
    """Which time zone dates in memories are in."""
    local = now.astimezone(config.identity.zone)
    return Finding("time zone", "ok", f"{config.identity.timezone}, where it is {local:%Y-%m-%d %H:%M %z}")


def backups(config: Config, now: datetime) -> Finding:
    """Whether there is a backup, and how old the newest is."""
    folder = config.backup.dir
    try:
        owner = installation(config.data_dir)
    except OSError:
        return Finding("backups", "ok", "nothing to back up yet")
    found = archive.complete(folder, owner)
    if not found:
        message = f"there is none in {folder}"
        if config.backup.at is None:
            return Finding("backups", "ok", f"{message}; 'sidemirror backup' makes one, backup.at one a day")
        return Finding("backups", "warning", message, "the daily backup fails, or has not run yet: look at /readyz")
    made_at = datetime.fromtimestamp(found[-1].manifest.created_at, UTC)
    message = f"{len(found)} in {folder}, the newest of {made_at:%Y-%m-%d %H:%M} UTC"
    if config.backup.at is not None and now - made_at > _LATE:
        return Finding(
            "backups", "warning", message, "the daily backup fails or does not run: look at /readyz and the log"
        )
    return Finding("backups", "ok", message)
