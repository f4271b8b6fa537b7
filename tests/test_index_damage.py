"""No state of the index folder crashes the process or loses a hit (`index_damage` does it, each in its own process)."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.index_damage import IN_USE, LYING, OTHERS, UNHEALED

Seen = Mapping[str, Mapping[str, Any]]


@pytest.fixture(scope="module")
def seen() -> Iterator[Seen]:
    # Not pytest's own folder: one of the cases goes on as nobody, who cannot enter that.
    with tempfile.TemporaryDirectory(prefix="sidemirror-index-") as folder:
        done = subprocess.run(
            [sys.executable, "-m", "tests.index_damage", folder],
            cwd=Path(__file__).parents[1],
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        lines = [json.loads(line) for line in done.stdout.splitlines() if line.startswith('{"name"')]
        yield {line["name"]: line for line in lines}


@pytest.mark.parametrize("name", LYING)
def test_whatever_lies_there_every_hit_is_found_and_the_index_made_anew(seen: Seen, name: str) -> None:
    one = seen[name]
    assert one["status"] == 0
    assert (one["wrong"], one["wrong later"], one["settled"]) == ([], [], True), one
    if name in UNHEALED:
        assert one["source"] == "exact"
        assert "index" in one["trouble"]
    else:
        assert (one["source"], one["trouble"]) == ("index", None)


@pytest.mark.parametrize("name", IN_USE)
def test_whatever_happens_to_a_file_in_use_searches_go_on(seen: Seen, name: str) -> None:
    assert seen[name] == {"name": name, "status": 0, "wrong": [], "source": "index"}


@pytest.mark.parametrize("name", ["disk full", "read-only"])
def test_an_index_that_cannot_be_written_is_done_without_and_written_later(seen: Seen, name: str) -> None:
    one = seen[name]
    assert one["status"] == 0
    assert (one["wrong"], one["while"], one["left"]) == ([], "exact", []), one
    assert "cannot be written" in one["trouble"]
    assert (one["wrong later"], one["source"], one["trouble later"]) == ([], "index", None), one


@pytest.mark.parametrize("name", ["read-only but whole", "no copy fits"])
def test_a_whole_index_is_used_where_nothing_can_be_written(seen: Seen, name: str) -> None:
    assert seen[name] == {"name": name, "status": 0, "wrong": [], "source": "index"}


def test_every_case_was_run(seen: Seen) -> None:
    assert seen.keys() == {*LYING, *IN_USE, *OTHERS}
