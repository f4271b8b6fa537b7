"""`sidemirror reindex`."""

from __future__ import annotations

import typer
from rich.console import Console

from proxy import log
from proxy.app import utc_now
from proxy.cli.backup import ConfigOption, DataOption, settings_of
from proxy.cli.progress import bars
from proxy.config import default_path
from proxy.errors import SidemirrorError
from proxy.reindex import reindex as make_anew


def reindex(config: ConfigOption = None, data: DataOption = None) -> None:
    """Rebuild the index of words and the vectors' index files from the records, and embed those that have no vector of
    the present model; the proxy must not run.

    Exit status: 0 when all is built, 2 when not.

    Example: sidemirror reindex
    """
    log.configure("error")
    settings = settings_of(config or default_path(), data)
    with bars(Console(stderr=True)) as told:
        done = make_anew(settings, utc_now, told)
    if done.embedded:
        typer.echo(f"{done.embedded} records embedded by the present model")
    typer.echo(f"{done.records} records indexed by their words, {done.files} index files made for large scopes")
    if done.trouble is not None:
        raise SidemirrorError(done.trouble)
