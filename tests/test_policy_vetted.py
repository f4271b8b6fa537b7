"""Shipped files are read without a second look: exactly those, and to the same end."""

from __future__ import annotations

from pathlib import Path

import pytest

from proxy.errors import PolicyError
from proxy.policy import vetted
from proxy.policy.load import load
from proxy.yamlfile import read, read_known
from tests.running import ROOT

FILES = sorted((ROOT / "policies").glob("*.yaml"))


def test_the_list_is_that_of_the_shipped_files() -> None:
    # When this fails: `make format` writes the list anew, once `sidemirror policy check policies` passes.
    assert vetted.LIST.read_text(encoding="utf-8") == vetted.listing(FILES)


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.name)
def test_read_fast_or_thoroughly_a_shipped_file_says_the_same(file: Path) -> None:
    located, problems = read(file)
    assert located is not None
    fast = read_known(file)
    assert (fast.data, problems) == (located.data, [])
    assert dict(fast.positions) == dict(located.positions)


def test_a_changed_file_is_looked_at_in_full(tmp_path: Path) -> None:
    shipped = (ROOT / "policies" / "10-chitchat.yaml").read_text(encoding="utf-8")
    changed = tmp_path / "10-chitchat.yaml"
    changed.write_text(shipped.replace("expect: dropped", "expect: ignored", 1), encoding="utf-8")
    with pytest.raises(PolicyError, match="expect"):
        load([changed])
    changed.write_text(shipped, encoding="utf-8")
    load([changed])


def test_vetted_and_thorough_loads_make_the_same_set() -> None:
    assert load(FILES).hash == load(FILES, thorough=True).hash
