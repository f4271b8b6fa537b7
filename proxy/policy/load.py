"""Policy files read, checked and compiled into one immutable `PolicySet`, or refused with every mistake in them.

In: folders and files. Out: the set. A folder gives its `*.yaml` by name, then those of its `local/` folder.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from proxy.errors import PolicyError, Problem
from proxy.policy import retention, retrieval
from proxy.policy.actions import Finding
from proxy.policy.check import bad_patterns, findings
from proxy.policy.merge import SECTIONS, Part, merged
from proxy.policy.model import Guard, PolicyFile, Trigger
from proxy.policy.retention import Retention, RetentionSection
from proxy.policy.retrieval import Retrieval, RetrievalSection
from proxy.policy.rules import PolicySet, Rule
from proxy.policy.tryout import failures
from proxy.policy.vetted import digest, digests
from proxy.yamlcheck import validate
from proxy.yamlfile import Where, read, read_known

HASH_CHARS = 12
NOUNS = {"when": "event", "has": "feature", "expect": "expectation", "on_conflict": "way to settle a conflict"}


@dataclass(frozen=True, slots=True)
class _Read:
    part: Part
    model: PolicyFile
    vetted: bool = False


@dataclass(slots=True)
class _Loading:
    models: Collection[str]
    thorough: bool = False
    problems: list[Problem] = field(default_factory=list)
    files: list[_Read] = field(default_factory=list)
    rules: dict[str, Rule] = field(default_factory=dict)


def policy_files(paths: Sequence[Path]) -> list[tuple[Path, bool]]:
    """The files that `load` reads, in order, each with whether it is a local one.

    Args:
        paths: Files, or folders whose ``*.yaml`` and ``local/*.yaml`` are meant.
    """
    shared: list[tuple[Path, bool]] = []
    local: list[tuple[Path, bool]] = []
    for path in paths:
        if path.is_dir():
            shared += [(file, False) for file in _yaml_files(path)]
            local += [(file, True) for file in _yaml_files(path / "local")]
        else:
            (local if path.parent.name == "local" else shared).append((path, path.parent.name == "local"))
    return shared + local


def _yaml_files(folder: Path) -> list[Path]:
    return sorted(file for file in folder.glob("*.y*ml") if file.suffix in (".yaml", ".yml") and file.is_file())


def load(paths: Sequence[Path], *, models: Collection[str] = (), thorough: bool = False) -> PolicySet:
    """Read, check and compile policies.

    Args:
        paths: Files or folders; messages name files as they are given here.
        models: Names under `models:` in config.yaml, for rules that use one.
        thorough: Look again at patterns and examples of files that are just as they were shipped.

    Returns:
        The compiled set; every example in the files has passed.

    Raises:
        PolicyError: With all problems of all files.
    """
    loading = _Loading(models, thorough)
    for path in paths:
        if path.is_dir() and not policy_files([path]):
            loading.problems.append(Problem(str(path), None, None, "", "the folder holds no policy files (*.yaml)"))
    for path, local in policy_files(paths):
        _read(path, local, loading)
    for file in loading.files:
        for index, trigger in enumerate(file.model.triggers):
            _add(trigger, index, file, loading)
    sections = _sections(loading)
    if loading.problems:
        raise PolicyError(sorted(loading.problems, key=lambda p: (p.file, p.line or 0, p.column or 0)))
    return _policy_set(loading, sections)


def _read(path: Path, local: bool, loading: _Loading) -> None:
    if not loading.thorough and _is_vetted(path):
        known = read_known(path)
        loading.files.append(_Read(Part(known, local), PolicyFile.model_validate(known.data), vetted=True))
        return
    located, problems = read(path)
    loading.problems += problems
    if located is None:
        return
    model, problems = validate(PolicyFile, located, NOUNS)
    loading.problems += problems
    if model is not None:
        loading.files.append(_Read(Part(located, local), model))


def _is_vetted(path: Path) -> bool:
    try:
        return digest(path.read_bytes()) in digests()
    except OSError:
        return False


def _add(trigger: Trigger, index: int, file: _Read, loading: _Loading) -> None:
    where: Where = ("triggers", index)
    part = file.part
    before = loading.rules.get(trigger.id)
    found = [((*where, *place), text) for place, text in _findings(trigger, file, loading)]
    if before is not None and not trigger.override:
        hint = "; set override: true to replace it" if part.local else "; rename one of the two"
        found.append(((*where, "id"), f"the id '{trigger.id}' stands already in {before.file}{hint}"))
    elif before is None and trigger.override and part.local:
        found.append(((*where, "override"), f"there is no rule '{trigger.id}' to replace; check the id"))
    if not found:
        rule = Rule.of(trigger, part.located.file, loading.models)
        found = [] if file.vetted else [((*where, *place), text) for place, text in failures(rule)]
        loading.rules[trigger.id] = rule
    loading.problems += [part.located.problem(part.located.inside(place) or where, text) for place, text in found]


def _findings(trigger: Trigger, file: _Read, loading: _Loading) -> list[Finding]:
    return findings(trigger, models=loading.models, local=file.part.local, vetted=file.vetted)


def _sections(loading: _Loading) -> dict[str, dict[str, Any]]:
    parts = [file.part for file in loading.files]
    sections: dict[str, dict[str, Any]] = {}
    for name in SECTIONS:
        sections[name], problems = merged(name, parts)
        loading.problems += problems
    keep = Retention.of(RetentionSection.model_validate(sections["retention"]))
    for file in (file for file in loading.files if not file.vetted):
        for place, text in _intent_findings(file.model):
            loading.problems.append(file.part.located.problem(file.part.located.inside(place), text))
    if loading.problems:
        return sections  # the figures of broken sections mean nothing
    prefer = Retrieval.of(RetrievalSection.model_validate(sections["retrieval"]))
    for file in loading.files:
        located = file.part.located
        for place, text in _section_findings(file.model, keep, prefer):
            loading.problems.append(located.problem(located.inside(place), text))
    return sections


def _intent_findings(file: PolicyFile) -> Iterator[tuple[Where, str]]:
    for index, intent in enumerate(file.retrieval.intents if file.retrieval else ()):
        yield from bad_patterns(intent.match, ("retrieval", "intents", index, "match"))


def _section_findings(file: PolicyFile, keep: Retention, prefer: Retrieval) -> Iterator[tuple[Where, str]]:
    if file.retention is not None:
        for index, memory in enumerate(file.retention.examples):
            for text in retention.failures(keep, memory):
                yield ("retention", "examples", index, "expect"), text
    if file.retrieval is not None:
        for index, query in enumerate(file.retrieval.examples):
            for text in retrieval.failures(prefer, query):
                yield ("retrieval", "examples", index, "expect"), text


def _policy_set(loading: _Loading, sections: dict[str, dict[str, Any]]) -> PolicySet:
    rules = tuple(loading.rules.values())
    keep = RetentionSection.model_validate(sections["retention"])
    prefer = RetrievalSection.model_validate(sections["retrieval"])
    guard = Guard.model_validate(sections["guard"])
    meaning = {
        "triggers": [rule.trigger.model_dump(mode="json", exclude={"examples", "why", "override"}) for rule in rules],
        "sections": [section.model_dump(mode="json", exclude={"examples"}) for section in (keep, prefer, guard)],
    }
    digest = hashlib.sha256(json.dumps(meaning, sort_keys=True, ensure_ascii=False).encode()).hexdigest()
    return PolicySet(
        triggers=rules,
        retention=Retention.of(keep),
        retrieval=Retrieval.of(prefer),
        guard=guard,
        hash=digest[:HASH_CHARS],
        files=tuple(file.part.located.file for file in loading.files),
    )
