"""What a policy file must satisfy beyond its grammar: one rule's fields against each other, and its examples.

In: a validated trigger. Out: `(place in the trigger, message)` pairs; the loader adds file, line and column.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from datetime import UTC, datetime

from proxy.policy.actions import Finding, action_findings
from proxy.policy.conditions import Conditions
from proxy.policy.jsonpath import steps
from proxy.policy.model import Trigger
from proxy.policy.patterns import BUILT_IN_NAMES, LANGUAGES, PROMPT_NAMES, SESSION_NAMES, ByLanguage, compiled, too_slow
from proxy.policy.rules import names_in, template_texts, unit_of
from proxy.yamlcheck import did_you_mean
from proxy.yamlfile import Where

SAMPLE_TIME = datetime(2026, 1, 5, 9, 0, tzinfo=UTC)
BOUND = "bound its repetitions, as in {0,40}"


def findings(trigger: Trigger, *, models: Collection[str], local: bool, vetted: bool = False) -> list[Finding]:
    """Everything wrong with one trigger, examples apart.

    Args:
        trigger: From a validated file.
        models: Names of config.yaml's models.
        local: Whether its file lies in a local/ folder.
        vetted: Whether its patterns are known to be sound.
    """
    broken = [] if vetted else list(_patterns(trigger))
    found = [
        *action_findings(trigger, models),
        *broken,
        *_templates(trigger),
        *_example_events(trigger),
    ]
    if trigger.override and not local:
        found.append((("override",), "only a rule in local/ may replace another one"))
    return found


def _nested(conditions: Conditions | None, where: Where) -> Iterator[tuple[Where, Conditions]]:
    if conditions is None:
        return
    yield where, conditions
    yield from _nested(conditions.not_, (*where, "not"))
    for mode in ("any", "all"):
        members: tuple[Conditions, ...] = getattr(conditions, mode) or ()
        for index, member in enumerate(members):
            yield from _nested(member, (*where, mode, index))


def _templates(trigger: Trigger) -> Iterator[Finding]:
    match = trigger.if_.match if trigger.if_ else None
    lines = unit_of(trigger, trigger.event) == "sentence"
    for where, template in _template_places(trigger):
        try:
            names = names_in(template)
        except ValueError as error:
            yield where, str(error)
            continue
        language = where[-1] if where[-2:-1] == ("template",) else None
        known = _names_at(where, trigger)
        for name in names:
            if name not in known:
                yield from ((where, message) for message in _uncaptured(name, match, language, lines))
    if trigger.extract and trigger.extract.template and match is not None and trigger.event == "user_message":
        written = template_texts(trigger.extract)
        for language in match.given():
            if language != "other" and language not in written and "every" not in written and not match.every:
                yield ("extract", "template"), f"there is a pattern but no template for {language}"


def _names_at(where: Where, trigger: Trigger) -> frozenset[str]:
    known = BUILT_IN_NAMES
    if trigger.event == "session_end":
        known |= SESSION_NAMES
    return known | PROMPT_NAMES if where[-1:] == ("prompt",) else known


def _template_places(trigger: Trigger) -> Iterator[tuple[Where, str]]:
    extract, write = trigger.extract, trigger.write
    if extract is not None:
        if extract.llm is not None:
            yield ("extract", "llm", "prompt"), extract.llm.prompt
        for language, text in template_texts(extract).items():
            yield ("extract", "template", language), text
        for name, source in (extract.slots or {}).items():
            yield ("extract", "slots", name), name
            if source == "$" or source.startswith(("$.", "$[")):
                yield from _path(name, source)
            else:
                yield ("extract", "slots", name), source
    if write is not None:
        for field in ("key", "slot"):
            if (text := getattr(write, field)) is not None:
                yield ("write", field), text
        for index, tag in enumerate(write.tags):
            yield ("write", "tags", index), tag


def _path(name: str, source: str) -> Iterator[tuple[Where, str]]:
    try:
        steps(source)
    except ValueError:
        yield ("extract", "slots", name), source  # the template check says what is wrong with it


def _uncaptured(name: str, match: ByLanguage | None, language: str | int | None, lines: bool) -> Iterator[str]:
    if name in SESSION_NAMES and match is None:
        yield f"${name} is known on session_end only"
        return
    if match is None:
        yield f"${name} is captured nowhere; give if.match with (?P<{name}>…)"
        return
    given = match.given()
    wanted = [lang for lang in given if language in (None, "every", lang)] or list(given)
    for lang in wanted:
        for pattern in given[lang]:
            try:
                groups = compiled(pattern, lines).groupindex
            except ValueError:  # reported where the pattern stands
                return
            if name not in groups:
                hint = did_you_mean(name, groups).replace("'", "$", 1).replace("'", "", 1)
                which = "" if match.every else f" for {lang}"
                yield f"${name} is not captured by the pattern{which}: {pattern[:60]}{hint}"
                return


def _patterns(trigger: Trigger) -> Iterator[Finding]:
    by_sentence = unit_of(trigger, trigger.event) == "sentence"
    for place, nested in _nested(trigger.if_, ("if",)):
        if nested.match is not None:
            # Only the rule's own `match` is ever run over all sentences at once.
            yield from bad_patterns(nested.match, (*place, "match"), lines=by_sentence and place == ("if",))


def bad_patterns(patterns: ByLanguage, where: Where, *, lines: bool = False) -> Iterator[Finding]:
    """Patterns that do not compile, or need too long for some text; `lines` as in `patterns.compiled`."""
    for language in (*LANGUAGES, "every"):
        texts: tuple[str, ...] = getattr(patterns, language)
        for index, pattern in enumerate(texts):
            place = (*where, language, index)
            try:
                if too_slow(pattern, lines):
                    yield place, f"the pattern needs over 20 ms for some text of 8,000 characters; {BOUND}"
            except ValueError as error:
                yield place, str(error)


def _example_events(trigger: Trigger) -> Iterator[Finding]:
    for index, example in enumerate(trigger.examples):
        if example.event_type != trigger.event:
            message = f"this example is a {example.event_type}, but the rule waits for {trigger.event}"
            yield ("examples", index), message
        if trigger.drop and example.expect not in ("ignored", "dropped"):
            yield ("examples", index, "expect"), "a rule that drops writes nothing; expect dropped or ignored"
