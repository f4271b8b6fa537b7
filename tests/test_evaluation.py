"""Recall cases: reading them, the figures, comparing two runs, and a run against the real recall."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path

import pytest

from proxy.config import Config, load
from proxy.errors import SidemirrorError
from proxy.evaluation import run as runs
from proxy.evaluation.cases import Case, read
from proxy.evaluation.score import OVERALL, Ranked, auroc, compare, score
from proxy.policy.load import load as load_policies

NOW = datetime(2026, 4, 1, tzinfo=UTC)
EXAMPLES = Path(__file__).parent.parent / "docs" / "examples" / "cases.jsonl"


def case(**changes: object) -> Case:
    fields: dict[str, object] = {
        "scope": "one",
        "memories": [
            {"id": "tea", "content": "The user drinks green tea", "created_at": "2026-01-01T08:00:00Z"},
            {"id": "tea-2", "content": "The user drinks green tea", "created_at": "2026-01-02T08:00:00Z"},
            {"id": "cat", "content": "用户的猫叫年糕", "created_at": "2026-01-03T08:00:00Z"},
        ],
        "queries": [
            {"id": "q1", "query": "What does the user drink?", "category": "en", "relevant": ["tea"]},
            {"id": "q2", "query": "猫叫什么？", "category": "zh", "relevant": ["cat"]},
            {"id": "q3", "query": "Which car is it?", "category": "en", "relevant": []},
        ],
    }
    return Case.model_validate({**fields, **changes})


@pytest.fixture
def config(tmp_path: Path) -> Config:
    path = tmp_path / "config.yaml"
    path.write_text("{}", encoding="utf-8")
    return load(path, {}, [])


def played(config: Config, *cases: Case, conflicts: bool = False) -> list[Ranked]:
    return runs.play(config, load_policies(config.policies), cases, NOW, lambda *_: None, conflicts=conflicts)


def test_reads_cases_and_names_every_mistake_with_its_line(tmp_path: Path) -> None:
    path = tmp_path / "cases.jsonl"
    good = case().model_dump_json()
    unknown = case(queries=[{"id": "x", "query": "?", "relevant": ["gone"]}]).model_dump_json()
    path.write_text(f'{good}\n\n{{"scope": "two"}}\n{unknown}\n{good}\n', encoding="utf-8")
    with pytest.raises(SidemirrorError) as caught:
        read(path)
    message = str(caught.value)
    assert f"{path}:3: memories: Field required" in message
    assert f"{path}:4: query 'x' names the memory 'gone'" in message
    assert "query id 'q1' stands 2 times" in message


def test_an_empty_file_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "cases.jsonl"
    path.write_text("\n", encoding="utf-8")
    with pytest.raises(SidemirrorError, match="holds no case"):
        read(path)


def test_a_repeated_memory_id_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "cases.jsonl"
    path.write_text(case(memories=[{"id": "a", "content": "x"}] * 2, queries=[]).model_dump_json(), encoding="utf-8")
    with pytest.raises(SidemirrorError, match="'a' stands 2 times"):
        read(path)


def test_figures_are_those_of_the_definitions() -> None:
    query = {"id": "q", "query": "?", "category": "c", "relevant": ["a", "b"], "stale": ["old"]}
    memories = [{"id": name, "content": name} for name in ("a", "b", "old", "x", "y", "z", "w", "v")]
    one = case(memories=memories, queries=[query])
    ids = ("old", "x", "y", "z", "w", "a", "v", "b")
    ranked = Ranked("q", tuple((name,) for name in ids), (0.9,) * 8, (100, 100, 100, 100, 100, 600, 100, 100))
    row = score([one], [ranked]).rows[OVERALL]
    assert row["R@5"] == 0.0
    assert row["R@10"] == 1.0
    assert row["stale-err"] == 1.0
    assert row["B@500"] == 0.0
    assert row["B@1000"] == 0.5  # a does not fit any more, b does
    assert row["B@2000"] == 1.0


def test_one_memory_made_from_several_counts_for_each() -> None:
    one = case(queries=[{"id": "q", "query": "?", "relevant": ["tea", "tea-2"]}])
    row = score([one], [Ranked("q", (("tea", "tea-2"),), (0.5,), (10,))]).rows[OVERALL]
    assert row["R@5"] == 1.0


def test_a_question_missing_from_the_run_counts_as_nothing_found() -> None:
    figures = score([case()], [Ranked("q1", (("tea",),), (0.5,), (10,))])
    assert figures.rows["en"]["R@10"] == 1.0
    assert figures.rows["zh"]["R@10"] == 0.0
    assert figures.rows[OVERALL]["B@1000"] == 0.5


def test_auroc_of_equal_scores_is_a_half() -> None:
    assert auroc([0.5, 0.5], [0.5]) == 0.5
    assert auroc([0.9], [0.1]) == 1.0
    assert auroc([], [0.1]) is None


def test_compare_names_what_got_better_and_what_got_worse() -> None:
    def found(name: str, *ids: str) -> Ranked:
        return Ranked(name, tuple((one,) for one in ids), (0.5,) * len(ids), (1,) * len(ids))

    before = [found("q1", "tea", "cat"), found("q2", "tea", "cat"), found("q3", "tea")]
    after = [found("q1", "cat", "tea"), found("q2", "cat", "tea"), found("q3", "cat")]
    worse, better = compare([case()], before, after)
    assert (worse.query.id, worse.before, round(worse.after, 2)) == ("q1", 1.0, 0.63)
    assert (better.query.id, better.after) == ("q2", 1.0)


def test_finds_by_meaning_in_both_languages_and_ranks_everything_there_is(config: Config) -> None:
    first, second, third = played(config, case())
    assert first.ranked[0] == ("tea-2",) or first.ranked[0] == ("tea",)
    assert second.ranked[0] == ("cat",)
    assert {len(one.ranked) for one in (first, second, third)} == {3}
    assert list(first.scores) == sorted(first.scores, reverse=True)
    assert all(cost > 0 for cost in first.tokens)


def test_scopes_do_not_see_each_other(config: Config) -> None:
    other = case(
        scope="two",
        memories=[{"id": "dog", "content": "用户的狗叫旺财"}],
        queries=[{"id": "q9", "query": "猫叫什么？", "relevant": []}],
    )
    *_, last = played(config, case(), other)
    assert last.ranked == (("dog",),)


def test_conflicts_merge_what_is_the_same_and_drop_what_was_replaced(config: Config) -> None:
    told = case(
        memories=[
            {"id": "new", "content": "The user has moved to Lyon now", "created_at": "2026-03-01T08:00:00Z"},
            {"id": "old", "content": "The user lives in Berlin", "created_at": "2026-01-01T08:00:00Z"},
            {"id": "tea", "content": "The user drinks green tea", "created_at": "2026-01-02T08:00:00Z"},
            {"id": "tea-2", "content": "The user drinks green tea", "created_at": "2026-01-03T08:00:00Z"},
        ],
        queries=[{"id": "q1", "query": "Where does the user live?", "relevant": ["new"], "stale": ["old"]}],
    )
    (ranked,) = played(config, told, conflicts=True)
    assert ("tea", "tea-2") in ranked.ranked
    assert score([told], [ranked]).rows[OVERALL]["stale-err"] == 0.0
    assert not any("old" in ids for ids in ranked.ranked)


def test_a_run_reads_back_as_it_was_written(tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"
    run = [Ranked("q", (("a",), ("b", "c")), (0.5, 0.25), (3, 4))]
    runs.write(path, run)
    assert json.loads(path.read_text())["ranked"] == ["a", ["b", "c"]]
    assert runs.read(path) == run


def test_what_is_no_run_is_refused_with_its_line(tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"
    path.write_text('{"ranked": []}\n', encoding="utf-8")
    with pytest.raises(SidemirrorError, match=r"run\.jsonl:1: not a line of a run"):
        runs.read(path)


def test_the_shipped_example_is_answered_well(config: Config) -> None:
    cases = read(EXAMPLES)
    assert sum(len(one.queries) for one in cases) >= 12
    figures = score(cases, played(config, *cases))
    assert figures.rows[OVERALL]["R@10"] >= 0.9
    assert figures.rows["changed"]["stale-err"] == 0.0
    assert figures.auroc is not None
