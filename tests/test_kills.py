"""kill -9 under load; the long run with 100 kills is `python -m bench.kills`."""

from __future__ import annotations

from pathlib import Path

import pytest

from bench.kills import rampage

KILLS = 20


@pytest.mark.timeout(420)
def test_twenty_kills_lose_no_acknowledged_write_and_double_none(tmp_path: Path) -> None:
    promised = rampage(tmp_path, KILLS)
    assert len(promised.written) > KILLS
    assert len(promised.said) > KILLS
