"""What was worked out once is not worked out again, and never taken for something else."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest
import regex

from proxy.policy import literals
from proxy.shelf import SHELF, Shelf, compiled, digest_of
from tests.running import ROOT


class Work:
    """Counts how often it is done."""

    def __init__(self, result: object = "made") -> None:
        self.done = 0
        self._result = result

    def __call__(self) -> object:
        self.done += 1
        return self._result


def _kept(path: Path, *keys: str) -> None:
    shelf = Shelf(path)
    for key in keys:
        shelf.get((key,), Work(f"value of {key}"))
    shelf.save()


def test_a_value_is_made_once_in_a_process_and_never_again_after_it_was_saved(tmp_path: Path) -> None:
    path, work = tmp_path / "folder" / "kept", Work()
    shelf = Shelf(path)
    assert shelf.get(("a", 1), work) == shelf.get(("a", 1), work) == "made"
    assert (work.done, shelf.lacks_some()) == (1, True)
    shelf.save()
    again = Shelf(path)
    assert again.get(("a", 1), work) == "made"
    assert (work.done, again.lacks_some(), shelf.lacks_some()) == (1, False, False)


def test_what_differs_in_any_part_of_the_key_is_made_anew(tmp_path: Path) -> None:
    _kept(tmp_path / "kept", "a")
    assert Shelf(tmp_path / "kept").get(("a", 2), Work("another")) == "another"


@pytest.mark.parametrize("damage", [b"", b"\0", b"no digest and no pickle" * 9], ids=["emptied", "a byte", "rubbish"])
def test_a_damaged_file_costs_time_and_nothing_else(tmp_path: Path, damage: bytes) -> None:
    path = tmp_path / "kept"
    path.write_bytes(damage)
    _kept(path, "a")
    whole = path.read_bytes()
    for spoilt in (whole[:-1], whole[:40], bytes([whole[0] ^ 1]) + whole[1:], whole[:-1] + bytes([whole[-1] ^ 1])):
        path.write_bytes(spoilt)
        assert Shelf(path).get(("a",), Work("made anew")) == "made anew"


def test_saving_keeps_what_others_use_and_leaves_nothing_half_written(tmp_path: Path) -> None:
    path, work = tmp_path / "kept", Work()
    _kept(path, "a")
    _kept(path, "b")
    again = Shelf(path)
    assert (again.get(("a",), work), again.get(("b",), work)) == ("value of a", "value of b")
    assert [file.name for file in tmp_path.iterdir()] == ["kept"]


def test_another_user_of_the_machine_may_read_it(tmp_path: Path) -> None:
    before = os.umask(0o022)
    try:
        _kept(tmp_path / "kept", "a")
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "kept").stat().st_mode) == 0o644


def test_what_making_raises_is_raised_and_not_kept(tmp_path: Path) -> None:
    shelf = Shelf(tmp_path / "kept")
    with pytest.raises(regex.error):
        shelf.get(("broken",), lambda: regex.compile("("))
    assert not shelf.lacks_some()


@pytest.mark.parametrize(
    ("pattern", "flags", "text"),
    [
        (r"(?P<city>北京|\p{Lu}\w+)(?<!New )", 0, "我在北京，不在 Berlin"),
        (r"(?i:favou?rite)\s+(?P<what>\w+)$", regex.MULTILINE, "my FAVOURITE tea\nnot mine"),
        (r"(?:ab?){1,60}z", regex.IGNORECASE, "ABABABZ"),
    ],
)
def test_a_pattern_read_from_the_shelf_does_what_the_compiled_one_does(
    tmp_path: Path, pattern: str, flags: int, text: str
) -> None:
    shelf = Shelf(tmp_path / "kept")
    made = shelf.get((pattern,), lambda: regex.compile(pattern, flags))
    shelf.save()
    read = Shelf(tmp_path / "kept").get((pattern,), Work())
    assert isinstance(read, regex.Pattern)
    assert (read.pattern, read.flags, dict(read.groupindex)) == (made.pattern, made.flags, dict(made.groupindex))
    assert [(m.span(), m.groupdict()) for m in read.finditer(text, timeout=1)] == [
        (m.span(), m.groupdict()) for m in made.finditer(text)
    ]


def test_compiled_is_what_the_engine_compiles() -> None:
    assert compiled("a+", regex.IGNORECASE).findall("xAaA") == ["AaA"]
    assert compiled("a+").findall("xAaA") == ["a"]
    with pytest.raises(regex.error):
        compiled("(")


def test_clauses_read_off_by_other_code_are_not_taken(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def read_off() -> tuple[object, Shelf]:
        shelf = Shelf(tmp_path / "kept")
        monkeypatch.setattr(literals, "SHELF", shelf)
        return literals.required("我更?喜欢"), shelf

    before, shelf = read_off()
    shelf.save()
    assert not read_off()[1].lacks_some()
    other = tmp_path / "literals.py"
    other.write_text("another way to read patterns")
    monkeypatch.setattr(literals, "_READING", digest_of(str(other)))
    after, shelf = read_off()
    assert after == before
    assert shelf.lacks_some()


def test_working_ahead_leaves_nothing_to_compile_at_start(tmp_path: Path) -> None:
    def told(code: str) -> str:
        elsewhere = f"import pathlib, proxy.shelf; proxy.shelf.SHELF.path = pathlib.Path({str(tmp_path / 'kept')!r}); "
        done = subprocess.run([sys.executable, "-c", elsewhere + code], cwd=ROOT, check=True, stdout=subprocess.PIPE)
        return done.stdout.decode().strip()

    told("import proxy.ahead; proxy.ahead.main()")
    assert told(
        "import proxy.cli; from proxy.config import load; from proxy.policy.watch import PolicyHolder; "
        "PolicyHolder(load(None, {}).policies); print(proxy.shelf.SHELF.lacks_some())"
    ) == "False"  # fmt: skip


def test_the_installations_own_lies_beside_the_byte_code() -> None:
    assert SHELF.path.parent.name == "__pycache__" or sys.pycache_prefix is not None
