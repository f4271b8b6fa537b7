"""config.yaml as one frozen value: read once at start, passed as an argument, never imported as a global.

In: a file (or none), the process environment, command-line flags. Out: a `Config`, or every mistake at once as a
`ConfigError`. Environment variables `SIDEMIRROR__SECTION__KEY` win over the file, flags over both. What to remember
and for how long is no business of this file: that lives in policies/.
"""

from __future__ import annotations

import copy
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, get_args, get_origin

from pydantic import BaseModel, SecretStr

from proxy.errors import ConfigError, Problem
from proxy.settings import (
    Auth,
    Backup,
    Config,
    Embedding,
    Identity,
    Index,
    Inject,
    Model,
    Quotas,
    Recall,
    Redis,
    Server,
    Session,
    Store,
    Upstream,
    is_loopback,
)
from proxy.yamlcheck import did_you_mean, validate
from proxy.yamlfile import Located, Where, read

__all__ = [
    "Auth", "Backup", "Config", "Embedding", "Identity", "Index", "Inject", "Model", "Override", "Quotas", "Recall",
    "Redis", "Server", "Session", "Store", "Upstream", "default_path", "env_names", "is_loopback", "load", "shipped",
]  # fmt: skip

ENV_PREFIX = "SIDEMIRROR__"


@dataclass(frozen=True, slots=True)
class Override:
    """A setting from outside the file.

    Args:
        label: How messages name it, e.g. ``--port`` or ``SIDEMIRROR__SERVER__PORT``.
        where: Path of the key, e.g. ``("server", "port")``.
        value: The value as it would stand in the file.
    """

    label: str
    where: tuple[str, ...]
    value: Any


def load(path: Path | None, environ: Mapping[str, str], flags: Sequence[Override] = ()) -> Config:
    """Read the settings: the file's, over them the environment's, over them the command line's.

    Args:
        path: The file; None for defaults only.
        environ: The process environment: `SIDEMIRROR__…` settings (an empty one counts as not set), and what
            `${NAME}` in any string stands for.
        flags: Command-line settings; they win. A path among them should be absolute.

    Returns:
        The settings, every path absolute: relative ones start at the file's folder, or at the working directory.

    Raises:
        ConfigError: Something is wrong; holds every problem found.
    """
    located, problems = read(path) if path else (Located("(no config file)", {}), [])
    overrides, unknown = _from_environment(environ)
    problems += unknown
    if located is None or not isinstance(located.data, dict):
        problems += [] if located is None else validate(Config, located)[1]
        raise ConfigError(problems)
    overrides = [*overrides, *flags]
    tree = _merged(located.data, overrides)
    merged = Located(located.file, tree, located.positions)
    problems += _substitute(tree, (), environ, merged)
    problems += _resolve_paths(tree, (path.parent if path else Path()).absolute(), merged)
    config, invalid = validate(Config, merged)
    reported = {problem.where for problem in problems if problem.where}
    problems += [problem for problem in invalid if problem.where not in reported]
    problems += [merged.problem(where, message) for where, message in (config.contradictions() if config else ())]
    if config is None or problems:
        problems = [_relabelled(problem, overrides) for problem in problems]
        raise ConfigError(sorted(problems, key=lambda problem: (problem.line or 0, problem.column or 0)))
    return config


def default_path(folder: Path | None = None) -> Path | None:
    """The file read when the command line names none: config.yaml in the working directory, if there is one."""
    path = (folder or Path()) / "config.yaml"
    return path if path.is_file() else None


def shipped() -> Path:
    """The folder with the shipped config.yaml and policies/: inside an installed wheel, or the checkout's root."""
    package = Path(__file__).resolve().parent
    inside = package / "shipped"
    return inside if inside.is_dir() else package.parent


def env_names(model: type[BaseModel] = Config, prefix: str = ENV_PREFIX) -> Iterator[tuple[str, tuple[str, ...]]]:
    """Every environment variable that is a setting, with the path of its key; a map's own name takes JSON."""
    for name, field in model.model_fields.items():
        variable = prefix + name.upper()
        yield variable, (name,)
        if isinstance(field.annotation, type) and issubclass(field.annotation, BaseModel):
            for inner, where in env_names(field.annotation, variable + "__"):
                yield inner, (name, *where)


def _from_environment(environ: Mapping[str, str]) -> tuple[list[Override], list[Problem]]:
    known, overrides, problems = dict(env_names()), [], []
    for variable, text in sorted(environ.items()):
        if not variable.startswith(ENV_PREFIX):
            continue
        where = known.get(variable)
        if where is None:
            # Compared without the prefix, which would make any two names look alike.
            near = did_you_mean(variable.removeprefix(ENV_PREFIX), [name.removeprefix(ENV_PREFIX) for name in known])
            hint = near.replace("'", f"'{ENV_PREFIX}", 1)
            problems.append(Problem(variable, None, None, "", f"there is no such setting{hint}"))
        elif text:
            try:
                overrides.append(Override(variable, where, _parsed(text, where)))
            except ValueError as error:
                problems.append(Problem(variable, None, None, "", str(error)))
    # A map's own variable comes before those of its keys, which then win.
    return sorted(overrides, key=lambda override: len(override.where)), problems


def _parsed(text: str, where: tuple[str, ...]) -> Any:
    """An environment variable's text as the value that would stand in the file."""
    annotation = _annotation(where)
    is_map = isinstance(annotation, type) and issubclass(annotation, BaseModel)
    is_list = get_origin(annotation) is tuple
    try:
        value = json.loads(text)
    except ValueError:
        value = text
    if is_map or is_list:
        if not isinstance(value, dict if is_map else list):
            raise ValueError(f"must be a JSON {'map' if is_map else 'list'}")
        return value
    choices = get_args(annotation) or (annotation,)
    if value is None and type(None) in choices:
        return None
    # A user called 42, or a key of digits only, is text.
    return text if {str, Path, SecretStr}.intersection(choices) else value


def _annotation(where: tuple[str, ...]) -> Any:
    annotation: Any = Config
    for name in where:
        annotation = annotation.model_fields[name].annotation
    return annotation


def _merged(data: Mapping[str, Any], overrides: Sequence[Override]) -> dict[str, Any]:
    tree = copy.deepcopy(dict(data))
    for name, field in Config.model_fields.items():
        # A section whose keys are all commented out is null in YAML, and means its defaults.
        if tree.get(name) is None and isinstance(field.annotation, type) and issubclass(field.annotation, BaseModel):
            tree.pop(name, None)
    for override in overrides:
        node = tree
        for step in override.where[:-1]:
            if not isinstance(node.get(step), dict):
                node[step] = {}
            node = node[step]
        last = override.where[-1]
        kept, value = node.get(last), copy.deepcopy(override.value)
        node[last] = {**kept, **value} if isinstance(kept, dict) and isinstance(value, dict) else value
    return tree


def _substitute(node: Any, where: Where, environ: Mapping[str, str], located: Located) -> list[Problem]:
    """Replace `${NAME}` in every string below `node`, in place."""
    problems: list[Problem] = []
    for key, value in list(node.items() if isinstance(node, dict) else enumerate(node)):
        at = (*where, key)
        if isinstance(value, dict | list):
            problems += _substitute(value, at, environ, located)
        elif isinstance(value, str) and "${" in value:
            for name in re.findall(r"\$\{(\w+)\}", value):
                if name not in environ:
                    message = f"the environment variable {name} is not set; set it, or write the value here"
                    problems.append(located.problem(at, message))
            node[key] = re.sub(r"\$\{(\w+)\}", lambda found: environ.get(found.group(1), found.group(0)), value)
    return problems


def _resolve_paths(tree: dict[str, Any], base: Path, located: Located) -> list[Problem]:
    """Make every path absolute, in place; a `policies` folder that is not there is the shipped one."""
    tree.setdefault("data_dir", "data")
    backup = tree.setdefault("backup", {})
    if isinstance(backup, dict):
        backup.setdefault("dir", "backups")
    embedding = tree.get("embedding")
    for node, key in ((tree, "data_dir"), (backup, "dir")):
        if isinstance(node, dict) and isinstance(node.get(key), str):
            node[key] = str(base / Path(node[key]).expanduser())
    if (
        isinstance(embedding, dict)
        and isinstance(embedding.get("model"), str)
        and embedding.get("provider") != "litellm"
    ):
        folder = base / Path(embedding["model"]).expanduser()
        # Anything else is a name: builtin, or a hub id.
        if embedding["model"] != "builtin" and folder.exists():
            embedding["model"] = str(folder)
    return _resolve_policies(tree, base, located)


def _resolve_policies(tree: dict[str, Any], base: Path, located: Located) -> list[Problem]:
    problems = []
    entries = tree.setdefault("policies", ["policies"])
    for index, entry in enumerate(entries if isinstance(entries, list) else []):
        if not isinstance(entry, str):
            continue
        path = base / Path(entry).expanduser()
        if not path.exists():
            if entry == "policies":
                path = shipped() / "policies"
            else:
                problems.append(located.problem(("policies", index), f"there is no file or folder {path}"))
        entries[index] = str(path)
    return problems


def _relabelled(problem: Problem, overrides: Sequence[Override]) -> Problem:
    """Name the variable or flag that a wrong value came from, in place of a line of the file."""
    for override in reversed(overrides):
        place = ".".join(override.where)
        if problem.where == place or problem.where.startswith((place + ".", place + "[")):
            return Problem(override.label, None, None, problem.where, problem.message)
    return problem
