"""The whole examination, in the order in which one thing rests on another.

In: where the settings come from. Out: a report. What cannot be told because something below it is broken is left out.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from pathlib import Path

from proxy.config import Config, Override, load
from proxy.doctor import installation, services, stored
from proxy.doctor.finding import Finding, Report
from proxy.errors import ConfigError, SidemirrorError
from proxy.store.data_dir import claimed


def examine(
    path: Path | None, environ: Mapping[str, str], flags: Sequence[Override], now: datetime
) -> tuple[Report, Config | None]:
    """Look at everything.

    Args:
        path: The settings file; None for defaults only.
        environ: The process environment.
        flags: Command-line settings.
        now: Aware UTC.

    Returns:
        The report, and the settings if they could be read.
    """
    package = [installation.litellm_release(), installation.model_files()]
    try:
        config = load(path, environ, flags)
    except ConfigError as error:
        wrong = [
            Finding("config", "broken", str(problem), "correct it; the rest is looked at then")
            for problem in error.problems
        ]
        return Report((*wrong, *package), proxy_runs=False), None
    settings = Finding("config", "ok", str(path) if path else "no file: defaults and the environment")
    try:
        # Held while we look: a proxy that starts meanwhile would change what is seen.
        with claimed(config.data_dir) as idle:
            found = list(_all(config, now, proxy_runs=not idle))
    except SidemirrorError as error:
        idle, found = True, [Finding("data folder", "broken", str(error))]
    return Report((settings, *package, *found), proxy_runs=not idle), config


def _all(config: Config, now: datetime, *, proxy_runs: bool) -> Iterator[Finding]:
    yield from installation.policies(config)
    embedder, fingerprint = installation.embedder(config)
    yield embedder
    yield installation.timezone(config, now)
    yield from installation.permissions(config)
    yield from installation.disk_space(config)
    yield from stored.store(config, fingerprint)
    yield installation.backups(config, now)
    yield services.redis(config, proxy_runs=proxy_runs)
    yield from services.port(config, proxy_runs=proxy_runs)
    yield from services.upstreams(config)
