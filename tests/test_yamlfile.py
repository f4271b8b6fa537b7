"""Hand-written YAML: every mistake at its line and column."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import pytest
from pydantic import BaseModel, ConfigDict, Discriminator, Field, StrictBool, Tag

from proxy.yamlcheck import validate
from proxy.yamlfile import parse, read


class Inner(BaseModel):
    model_config = ConfigDict(extra="forbid")
    colour: Literal["red", "green"] = "red"
    on: StrictBool = False
    count: int = Field(default=0, ge=0)


class Outer(BaseModel):
    model_config = ConfigDict(extra="forbid")
    version: Literal[1]
    name: str = ""
    items: list[Inner] = []
    either: (
        Annotated[
            Annotated[str, Tag("(text)")] | Annotated[Inner, Tag("(map)")],
            Discriminator(lambda value: "(text)" if isinstance(value, str) else "(map)"),
        ]
        | None
    ) = None


def problems(text: str) -> list[str]:
    located, found = parse(text, "f.yaml")
    if located is not None:
        found += validate(Outer, located)[1]
    return [str(problem) for problem in found]


def test_a_right_file_gives_its_model_and_no_problem() -> None:
    located, found = parse("version: 1\nitems:\n  - {colour: green, 'on': true}\n", "f.yaml")
    assert located is not None
    model, more = validate(Outer, located)
    assert (found, more) == ([], [])
    assert model is not None
    assert model.items[0].colour == "green"


def test_all_mistakes_come_at_once_with_line_and_column() -> None:
    assert problems("version: 1\nnmae: x\nitems:\n  - colour: gren\n    count: -1\n  - {cuont: 3}\n") == [
        "f.yaml:4:5: items[0].colour: 'gren' is not a colour; did you mean 'green'?",
        "f.yaml:5:5: items[0].count: input should be greater than or equal to 0 (got -1)",
        "f.yaml:6:6: items[1].cuont: unknown key 'cuont'; did you mean 'count'?",
        "f.yaml:2:1: nmae: unknown key 'nmae'; did you mean 'name'?",
    ]


def test_items_are_named_by_their_id() -> None:
    located, _ = parse("items:\n  - id: first\n    write: {kind: x}\n", "f.yaml")
    assert located is not None
    assert str(located.problem(("items", 0, "write", "kind"), "bad")) == "f.yaml:3:13: items[first].write.kind: bad"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("version: 1\nversion: 1\n", "f.yaml:2:1: the key 'version' stands twice in one map; keep one of them"),
        ('name: "\\d+"\n', "f.yaml:1:9: found unknown escape character 'd'; write patterns in single quotes, where a"),
        ("name: [1,\n", "f.yaml:2:1: not valid YAML"),
        ("a: 1\n---\nb: 2\n", "f.yaml:2:1: not valid YAML: but found another document"),
        ("name: a\n b: c\n", "f.yaml:2:3: not valid YAML"),
        ("version: 1\nname: ab\x07c\n", "f.yaml:2:9: the control character U+0007 cannot stand in YAML"),
        ("{}\n", "f.yaml:1:1: version: this key is required"),
        ("- 1\n", "f.yaml:1:1: input should be a valid dictionary"),
    ],
)
def test_broken_files(text: str, expected: str) -> None:
    assert problems(text)[0].startswith(expected)


@pytest.mark.parametrize("word", ["yes", "no", "on", "Off", "NO"])
def test_bare_yaml_1_1_booleans_are_refused_and_quoted_ones_are_words(word: str) -> None:
    [problem] = problems(f"version: 1\nname: {word}\n")
    assert problem.startswith(f"f.yaml:2:1: name: '{word}' is a boolean in YAML 1.1 and a word in YAML 1.2")
    assert problems(f"version: 1\nname: '{word}'\n") == []


def test_bare_boolean_as_a_key_is_refused() -> None:
    assert "'on' is a boolean in YAML 1.1" in problems("version: 1\nitems: [{on: true}]\n")[0]


def test_a_boolean_where_text_is_meant_asks_for_quotes() -> None:
    assert problems("version: 1\nname: true\n") == ["f.yaml:2:1: name: true is a boolean where text is meant; quote it"]


def test_members_of_a_union_are_no_part_of_the_place() -> None:
    assert problems("version: 1\neither: {colour: blue}\n") == [
        "f.yaml:2:10: either.colour: 'blue' is not a colour; one of red, green"
    ]


def test_anchors_and_merge_keys_are_followed() -> None:
    located, found = parse("base: &b {count: 1}\nitems:\n  - {<<: *b, colour: red}\n", "f.yaml")
    assert found == []
    assert located is not None
    assert located.data["items"] == [{"colour": "red", "count": 1}]


def test_missing_and_undecodable_files_are_problems(tmp_path: Path) -> None:
    assert "does not exist" in str(read(tmp_path / "none.yaml")[1][0])
    (tmp_path / "latin.yaml").write_bytes(b"name: caf\xe9\n")
    located, [problem] = read(tmp_path / "latin.yaml", shown="latin.yaml")
    assert located is None
    assert str(problem).startswith("latin.yaml: cannot be read as UTF-8 text")


def test_empty_file_is_an_empty_map() -> None:
    located, found = parse("# nothing\n", "f.yaml")
    assert located is not None
    assert (located.data, found) == ({}, [])
