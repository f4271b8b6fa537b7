"""`sidemirror serve`: the event loop, the signals, and what is said at start."""

from __future__ import annotations

import asyncio
import gc
import signal
import sys
from collections.abc import Callable
from pathlib import Path

import typer

from proxy import __version__, log
from proxy.app import serving
from proxy.config import Config

if sys.platform != "win32":
    import uvloop

    LOOP_FACTORY: Callable[[], asyncio.AbstractEventLoop] | None = uvloop.new_event_loop
else:
    LOOP_FACTORY = None


def run_server(config: Config, *, strict: bool, config_file: Path | None = None) -> None:
    """Serve until SIGINT or SIGTERM; calls in flight are let through, and what is queued is written.

    Args:
        config: Settings.
        strict: Refuse to start with a damaged store.
        config_file: Where the settings were read from, absolute; None for defaults only.
    """
    log.configure("debug" if config.debug else "info")
    with asyncio.Runner(loop_factory=LOOP_FACTORY) as runner:
        runner.run(_serve(config, strict=strict, config_file=config_file))


async def _serve(config: Config, *, strict: bool, config_file: Path | None) -> None:
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop.set)
    async with serving(config, strict=strict, config_file=config_file) as address:
        typer.echo(
            f"Sidemirror {__version__} is ready\n"
            f"  base URL  {address}/v1    (export OPENAI_BASE_URL={address}/v1)\n"
            f"  upstream  {config.upstream.base_url}\n"
            f"  health    {address}/readyz\n"
            f"  data      {config.data_dir}\n"
            f"  try it    sidemirror demo --url {address}"
        )
        await stop.wait()
        typer.echo("Sidemirror is stopping; answers in flight are finished first")
    # The interpreter's last collection would walk all of litellm for seconds; everything of ours is closed.
    gc.freeze()
