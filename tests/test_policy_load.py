"""Loading: every mistake of every file, at its place, and an immutable set when there is none."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path

import pytest

from proxy.errors import PolicyError
from proxy.policy.load import load
from proxy.policy.patterns import too_slow

RULE = """
  - id: likes
    when: user_message
    if: {match: 'I like (?P<thing>\\w+)'}
    extract: {template: The user likes $thing}
    write: {memory_type: semantic, kind: preference}
"""
Write = Callable[..., Path]


@pytest.fixture
def write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Write:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "policies" / "local").mkdir(parents=True)

    def _write(text: str, name: str = "10-a.yaml") -> Path:
        path = Path("policies") / name
        path.write_text(text if text.startswith("version") else f"version: 1\n{text}", "utf-8")
        return path

    return _write


def refused(*, models: tuple[str, ...] = ()) -> list[str]:
    with pytest.raises(PolicyError) as caught:
        load([Path("policies")], models=models)
    return [str(problem) for problem in caught.value.problems]


def only(text: str) -> str:
    [problem] = refused()
    assert text in problem, problem
    return problem


def rule(**changes: str) -> str:
    parts = {
        "id": "likes",
        "when": "user_message",
        "if": "{match: 'I like (?P<thing>\\w+)'}",
        "extract": "{template: The user likes $thing}",
        "write": "{memory_type: semantic}",
    } | {name.rstrip("_"): value for name, value in changes.items()}
    body = "\n".join(f"    {name}: {value}" for name, value in parts.items() if value)
    return f"triggers:\n  -\n{body}\n"


def test_error_has_the_form_of_the_policy_page(write: Write) -> None:
    write(f"triggers:{RULE}".replace("semantic", "semantc"), "10-write.yaml")
    assert refused() == [
        "policies/10-write.yaml:7:13: triggers[likes].write.memory_type: "
        "'semantc' is not a memory type; did you mean 'semantic'?"
    ]


def test_all_problems_of_all_files_come_at_once(write: Write) -> None:
    write(rule(when="user_mesage", mode="on"), "10-a.yaml")
    write(rule(write="{memory_type: semantic, ttl: 30, scop: user}"), "20-b.yaml")
    write("version: 1\ntriggers: [\n", "30-c.yaml")
    found = refused()
    assert [problem.split(":")[0] for problem in found] == [
        *["policies/10-a.yaml"] * 3,
        *["policies/20-b.yaml"] * 2,
        "policies/30-c.yaml",
    ]
    text = "\n".join(found)
    for part in ("did you mean 'user_message'", "YAML 1.1", "30 has no unit; write 30s", "did you mean 'scope'"):
        assert part in text


def test_files_load_in_order_of_name_and_local_last(write: Write) -> None:
    write(rule(id="b"), "20-b.yaml")
    write(rule(id="a"), "10-a.yaml")
    write(rule(id="mine"), "local/00-mine.yaml")
    policies = load([Path("policies")])
    assert [r.id for r in policies.triggers] == ["a", "b", "mine"]
    assert policies.files == ("policies/10-a.yaml", "policies/20-b.yaml", "policies/local/00-mine.yaml")


def test_single_files_and_missing_paths(write: Write) -> None:
    path = write(rule())
    assert len(load([path]).triggers) == 1
    with pytest.raises(PolicyError, match="nowhere: the file does not exist"):
        load([Path("nowhere")])
    with pytest.raises(PolicyError, match="holds no policy files"):
        load([Path("policies/local")])


def test_an_id_may_stand_once(write: Write) -> None:
    write(rule(), "10-a.yaml")
    write(rule(), "20-b.yaml")
    only("policies/20-b.yaml:4:5: triggers[likes].id: the id 'likes' stands already in policies/10-a.yaml; rename")


def test_local_rule_replaces_another_in_its_place(write: Write) -> None:
    write(rule(), "10-a.yaml")
    write(rule(id="later"), "20-b.yaml")
    write(rule(override="true", mode="shadow"), "local/mine.yaml")
    first, second = load([Path("policies")]).triggers
    assert (first.id, first.mode, first.file) == ("likes", "shadow", "policies/local/mine.yaml")
    assert second.id == "later"


def test_override_needs_a_rule_to_replace_and_a_local_folder(write: Write) -> None:
    write(rule(id="other", override="true"), "10-a.yaml")
    write(rule(id="missing", override="true"), "local/mine.yaml")
    first, second = refused()
    assert "only a rule in local/ may replace another one" in first
    assert "there is no rule 'missing' to replace" in second


def test_local_rule_with_a_known_id_says_what_to_set(write: Write) -> None:
    write(rule(), "10-a.yaml")
    write(rule(), "local/mine.yaml")
    only("set override: true to replace it")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"if": '{match: "\\bI like (?P<thing>x)"}'}, "control character U+0008; use single quotes"),
        ({"if": "{match: 'I like (?P<thing>x'}"}, "broken pattern: missing )"),
        ({"if": "{match: '(?P<thing>(x+)+y)'}"}, "needs over 20 ms for some text of 8,000 characters"),
        ({"if": "{match: 'I like (?P<thang>x)'}"}, "$thing is not captured by the pattern"),
        ({"if": "{match: {zh: '我(?P<thing>x)', en: 'I x'}}"}, "$thing is not captured by the pattern for en: I x"),
        ({"if": "{has: number}"}, "$thing is captured nowhere; give if.match"),
        ({"if": "{match: ''}"}, "an empty pattern matches everything"),
        ({"if": "{match: {fr: x}}"}, "'fr' is not a language here"),
        ({"if": "{}"}, "no condition is given"),
        ({"if": "{length: {min: 5, max: 3}, match: '(?P<thing>x)'}"}, "max 3 is below min 5"),
        ({"extract": "{template: costs $5}"}, "a $ is followed by no name"),
        ({"extract": "{template: x $thing, verbatim: {}}"}, "give exactly one of template, verbatim, slots, llm"),
        ({"extract": "{slots: {a: $thing}}"}, "slots are working memory; write memory_type: working"),
        ({"extract": "{slots: {a: '$.b[x]'}}", "write": "{memory_type: working}"}, "$ is followed by no name"),
        ({"write": "{memory_type: working}"}, "working memory is kept in slots"),
        ({"write": "{memory_type: semantic, key: 'user.$who'}"}, "write.key: $who is not captured"),
        ({"write": "{memory_type: semantic, scope: session}"}, "'session' is for working memory"),
        ({"write": "{memory_type: semantic, confidence: 1.5}"}, "less than or equal to 1"),
        ({"write": ""}, "the rule has no write; give extract and write, or drop: true"),
        ({"drop": "true"}, "a rule that drops the event has no extract"),
        ({"when": "request"}, "a rule on 'request' can only drop"),
        ({"when": "assistant_message"}, "makes only memories of kind decision, task, summary, not 'fact'"),
        ({"when": "{turn_end: {every: 0}}"}, "greater than or equal to 1"),
        ({"id": "Bad Id"}, "string should match pattern"),
        ({"examples": "[{user: I like tea, expect: [{content: no}]}]"}, "got {content: The user likes tea}"),
        ({"examples": "[{user: I like tea, expect: ignored}]"}, "expected nothing, but got {content: The user likes"),
        ({"examples": "[{user: x, expect: dropped}]"}, "expected the event to be dropped"),
        ({"examples": "[{assistant: x, expect: ignored}]"}, "a assistant_message, but the rule waits for user_message"),
        ({"examples": "[{user: x, assistant: y, expect: ignored}]"}, "give exactly one of user, assistant, tool"),
        ({"examples": "[{user: x, expect: ignore}]"}, "did you mean 'ignored'"),
    ],
)
def test_refused(write: Write, changes: dict[str, str], message: str) -> None:
    write(rule(**changes))
    found = refused()
    assert any(message in problem for problem in found), found
    assert all(problem.startswith("policies/10-a.yaml:") for problem in found)


LLM = "{llm: {model: extractor, prompt: 'About: $text', schema: {type: object}, timeout: 20s}}"
SWEEP = {"when": "{schedule: daily 03:00}", "if": "", "extract": "", "write": ""}
FORGET = {"extract": "{template: $thing}", "write": "", "forget": "true"}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"when": "schedule"}, 'a schedule needs its time; write {schedule: "daily 03:00"}'),
        ({"when": "{schedule: daly 03:00}"}, "'daly' is not a schedule; did you mean 'daily'?"),
        ({"when": "{schedule: daily 25:00}"}, "'25:00' is no time of day; write it like 03:00"),
        ({"when": "{schedule: weekly monn 3:00, at: x}"}, "unknown key 'at'"),
        (SWEEP | {"sweep": "[expire, archiv]"}, "'archiv' is not a sweep; did you mean 'archive'?"),
        (SWEEP | {"sweep": "[]"}, "at least 1 item"),
        (SWEEP | {"sweep": "[merge, merge]"}, "'merge' stands twice"),
        (SWEEP | {"sweep": "merge", "when": "turn_end"}, "a sweep runs at a time"),
        (SWEEP | {"sweep": "merge", "if": "{user: ann}"}, "takes no if"),
        (SWEEP | {"sweep": "merge", "extract": "{verbatim: {}}"}, "takes no extract"),
        (SWEEP | {"sweep": "merge", "examples": "[{episodes: [a], expect: ignored}]"}, "takes no examples"),
        (SWEEP | {"sweep": "merge", "write": "{memory_type: reflective}"}, "only reflect writes in a sweep"),
        (SWEEP | {"sweep": "reflect", "write": "{memory_type: semantic}"}, "write memory_type: reflective"),
        (SWEEP, "the rule has no extract; give extract and write, or sweep"),
        (FORGET | {"restore": "true"}, "a rule does one thing; remove forget or restore"),
        (FORGET | {"drop": "true"}, "a rule does one thing; remove drop or forget"),
        (FORGET | {"when": "tool_result"}, "only the user can ask to forget"),
        (FORGET | {"if": "", "extract": ""}, "would forget at every message"),
        (FORGET | {"write": "{memory_type: semantic}"}, "a rule that says forget writes nothing"),
        (FORGET | {"extract": LLM}, "what to forget is said by a template or verbatim"),
        ({"if": "{match: '(?P<thing>x)', value: {at_leest: 1}}"}, "unknown key 'at_leest'; did you mean 'at_least'?"),
        ({"if": "{match: '(?P<thing>x)', known: maybe}"}, "write true or false"),
        ({"if": "{match: '(?P<thing>x)', similar_to_existing: {at_least: 2}}"}, "less than or equal to 1"),
        ({"extract": LLM.replace("extractor", "extracter")}, "did you mean 'extractor'?"),
        ({"extract": LLM.replace("extractor", "claude-haiki")}, "did you mean 'claude-haiku'?"),
        ({"extract": LLM.replace("$text", "$who")}, "extract.llm.prompt: $who is not captured"),
        ({"extract": LLM.replace("$text", "$5")}, "a $ is followed by no name"),
        ({"extract": LLM.replace("20s", "20")}, "20 has no unit; write 20s"),
        ({"extract": LLM.replace("20s}", "20s, otherwise: template}")}, "give extract.template beside llm"),
        ({"extract": LLM.replace("20s}", "20s, otherwise: verbtim}")}, "did you mean 'verbatim'?"),
        ({"extract": LLM.replace("20s}", "20s}, template: x")}, "beside llm only what otherwise names"),
        ({"extract": LLM.replace("20s}", "20s}, slots: {a: b}")}, "beside llm only what otherwise names"),
        ({"extract": LLM, "write": "{memory_type: working, slot: x}"}, "a model makes memories, not slots"),
        ({"extract": "{template: $summary}"}, "$summary is not captured by the pattern"),
        ({"extract": "{template: $summary}", "if": ""}, "$summary is known on session_end only"),
        (
            {"examples": "[{user: I like tea, answer: {}, expect: ignored}]"},
            "only a rule with extract.llm gets an answer",
        ),
        (
            {"examples": "[{user: I like tea, expect: forgets}]"},
            "expected forgets but got {content: The user likes tea}",
        ),
        ({"examples": "[{episodes: [x], expect: ignored}]"}, "this example is a schedule, but"),
    ],
)
def test_new_parts_are_refused_where_they_make_no_sense(write: Write, changes: dict[str, str], message: str) -> None:
    write(rule(**changes))
    found = refused(models=("claude-haiku", "gpt-*"))
    assert any(message in problem for problem in found), found
    assert all(problem.startswith("policies/10-a.yaml:") for problem in found)


@pytest.mark.parametrize(
    "changes",
    [
        SWEEP | {"sweep": "[expire, archive, erase, merge, limits, compress, promote, reflect]"},
        SWEEP | {"sweep": "reflect", "write": "{memory_type: reflective, kind: lesson, tags: [pattern]}"},
        {"when": "{schedule: weekly sun 4:00}", "if": "", "extract": LLM, "write": "{memory_type: reflective}"},
        FORGET,
        {"forget": "true", "extract": "", "write": ""},
        {"restore": "true", "extract": "{verbatim: {}}", "write": ""},
        {"extract": LLM},
        {"extract": LLM.replace("extractor", "gpt-5")},
        {"extract": LLM.replace("20s}", "20s, otherwise: template}, template: x $thing")},
        {"extract": LLM.replace("20s}", "20s, otherwise: verbatim}, verbatim: {of: message}")},
        {"extract": LLM.replace("20s}", "20s, otherwise: verbatim}")},
        {"extract": LLM.replace(", schema: {type: object}", "").replace("$text", "$message $thing")},
        {"when": "session_end", "if": "", "extract": "{template: '$summary ($points)'}"},
        {"if": "{match: '(?P<thing>x)', known: false, value: {at_least: 0.5}}"},
    ],
)
def test_new_parts_load(write: Write, changes: dict[str, str]) -> None:
    write(rule(**changes))
    assert len(load([Path("policies")], models=("gpt-*",)).triggers) == 1


def test_an_absent_extractor_is_no_error_and_leaves_the_rule_to_its_fallback(write: Write) -> None:
    write(rule(extract=LLM))
    [absent] = load([Path("policies")]).triggers
    [present] = load([Path("policies")], models=("extractor",)).triggers
    assert (absent.asks, present.asks) == (False, True)


def test_what_retention_and_guard_offer_loads(write: Write) -> None:
    write(
        "retention: {compress: {episodic: {older_than: 30d, at_least: 8}}, promote: {same_fact_in_sessions: 3},"
        " delete_archived_after: 90d}\nguard: {rate: {writes_per_minute: 30, memories_per_user: 5000}}\n"
    )
    assert load([Path("policies")]).guard.rate.writes_per_minute == 30


def test_sections_of_several_files_are_merged_and_a_value_stands_once(write: Write) -> None:
    write("retention: {types: {episodic: {half_life: 30d}}}\n", "10-a.yaml")
    write("retention: {types: {episodic: {archive_below: 0.2}, semantic: {half_life: never}}}\n", "20-b.yaml")
    rule_ = load([Path("policies")]).retention.rule("episodic", "fact")
    assert (rule_.half_life, rule_.archive_below) == (30 * 86_400, 0.2)
    write("retention: {types: {episodic: {half_life: 3d}}}\n", "30-c.yaml")
    only("policies/30-c.yaml:2:32: retention.types.episodic.half_life: already set in policies/10-a.yaml")


def test_local_values_win(write: Write) -> None:
    write("guard: {max_chars: 8000}\nretrieval: {decay: {turn: 14d}}\n", "10-a.yaml")
    write("guard: {max_chars: 900}\nretrieval: {decay: {turn: 2d}}\n", "local/mine.yaml")
    policies = load([Path("policies")])
    assert (policies.guard.max_chars, policies.retrieval.decay("episodic", "turn")) == (900, 2 * 86_400)


def test_intents_have_ids_of_their_own(write: Write) -> None:
    intent = "retrieval: {intents: [{id: how, match: how, bonus: {episodic: 1.3}}]}\n"
    write(intent, "10-a.yaml")
    write(intent, "20-b.yaml")
    only("the id 'how' stands already in policies/10-a.yaml")


def test_failing_section_examples_refuse_the_file(write: Write) -> None:
    write(
        "retention:\n  types: {episodic: {half_life: 30d}}\n"
        "  examples:\n    - {memory: {memory_type: episodic, unused_for: 30d}, expect: {retained: 0.9}}\n"
        "retrieval:\n  examples:\n"
        "    - {query: x, given: [{id: a, dense: 0.9}, {id: b, dense: 0.1}], expect: [b, a]}\n"
    )
    first, second = refused()
    assert "policies/10-a.yaml:5:58: retention.examples[0].expect: expected retained 0.9 but got 0.500" in first
    assert "expected the order b, a but got a 0.500, b 0.056" in second


def test_broken_intent_pattern_is_a_problem(write: Write) -> None:
    write("retrieval: {intents: [{id: how, match: '(how', bonus: {episodic: 1.3}}]}\n")
    only("retrieval.intents[how].match: broken pattern: missing )")


def test_hash_follows_meaning_and_not_layout_or_examples(write: Write) -> None:
    write(rule())
    first = load([Path("policies")])
    write("# a comment\n" + rule(why="Because.", examples="[{user: I like tea, expect: [{kind: fact}]}]"))
    assert load([Path("policies")]).hash == first.hash
    write(rule(mode="shadow"))
    assert load([Path("policies")]).hash != first.hash


def test_policy_set_cannot_be_changed(write: Write) -> None:
    write(rule())
    policies = load([Path("policies")])
    with pytest.raises(dataclasses.FrozenInstanceError):
        policies.hash = "x"  # type: ignore[misc]
    with pytest.raises(ValueError, match="frozen"):
        setattr(policies.triggers[0].trigger, "mode", "disabled")  # noqa: B010


@pytest.mark.parametrize("pattern", [r"(a+)+b", r"(x|xx)+y", r"^(\w+\s?)*$", r"\s+$", r"(?:.{0,40}a){3}z"])
def test_patterns_that_blow_up_are_found(pattern: str) -> None:
    assert too_slow(pattern)


@pytest.mark.parametrize(
    "pattern", [r"[吗？?]\s*$", r"我(?:很|更)?喜欢(?P<t>[^，。]{1,40})", r"\bI like (\w+)", r"\A\s*x"]
)
def test_sound_patterns_raise_no_alarm(pattern: str) -> None:
    assert not too_slow(pattern)
