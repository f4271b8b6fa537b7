"""`sidemirror policy …`: check, explain, replay, schema."""

from __future__ import annotations

import json
import os
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any, Literal

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from proxy import log
from proxy.cli import replaying
from proxy.config import default_path, load
from proxy.embed import opened
from proxy.errors import PolicyError, SidemirrorError
from proxy.language import detect
from proxy.policy import load as loader
from proxy.policy.explain import explain as explained
from proxy.policy.match import evaluate
from proxy.policy.schema import schema_text
from proxy.replay.play import classifier
from proxy.types import Event

policy = typer.Typer(name="policy", help="Check, explain and try the YAML policies.", no_args_is_help=True)
Said = Literal["user", "assistant", "tool"]
_EVENTS: dict[Said, Literal["user_message", "assistant_message", "tool_result"]] = {
    "user": "user_message",
    "assistant": "assistant_message",
    "tool": "tool_result",
}
PathArgument = Annotated[
    Path | None, typer.Argument(help="File or folder.  (default: what config.yaml names, else the shipped policies)")
]


def _models() -> list[str]:
    return [model.name for model in load(default_path(), os.environ).models]


def _paths(path: Path | None) -> list[Path]:
    return [path] if path is not None else list(load(default_path(), os.environ).policies)


@policy.command()
def check(path: PathArgument = None) -> None:
    """Load policy files, run their examples, and print every mistake with its place."""
    try:
        found = loader.load(_paths(path), models=_models(), thorough=True)
    except PolicyError as error:
        for problem in error.problems:
            typer.echo(str(problem), err=True)
        typer.echo(f"{len(error.problems)} problem(s)", err=True)
        raise typer.Exit(1) from error
    typer.echo(f"{len(found.files)} file(s), {len(found.triggers)} rule(s), all examples hold; hash {found.hash}")


@policy.command()
def explain(
    text: Annotated[str, typer.Argument(help="What is said.")],
    role: Annotated[str, typer.Option("--as", help="Who says it: user, assistant or tool.")] = "user",
    tool: Annotated[str | None, typer.Option(help="Tool name, with --as tool.")] = None,
    policies: Annotated[Path | None, typer.Option("--policies", help="File or folder.")] = None,
    every: Annotated[bool, typer.Option("--all", help="Also rules that did not match.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Show which rules a text meets, condition by condition, and what would be written.

    Example: sidemirror policy explain "我更喜欢深色模式。"
    """
    if role not in _EVENTS:
        raise SidemirrorError(f"--as {role!r}: one of {', '.join(_EVENTS)}")
    event = Event(_EVENTS[role], text, detect(text), role, datetime.now(UTC), tool=tool, user_text=text)
    data = explained(evaluate(loader.load(_paths(policies), models=_models()), event, trace=True))
    if as_json:
        typer.echo(json.dumps(data, ensure_ascii=False, indent=2, default=str))
        return
    _print(data, every=every)


@policy.command()
def schema() -> None:
    """Print the JSON Schema of policy files, for editors."""
    typer.echo(schema_text(), nl=False)


@policy.command()
def replay(
    transcript: Annotated[
        Path,
        typer.Argument(
            help='JSON lines: one message each {"role", "content", "tool_calls"?, "tool_call_id"?, "at"?},'
            ' or one conversation each {"messages"}.'
        ),
    ],
    policies: Annotated[
        list[Path] | None,
        typer.Option("--policies", help="Files or folders to try instead of the live set; may be given several times."),
    ] = None,
    only_changes: Annotated[bool, typer.Option("--changes", help="With --policies: only what differs.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Run a transcript through the policies and print what would be written; nothing is stored.

    With --policies, each line tells how these differ from the live set (config.yaml's): + new, - gone, ~ changed,
    = the same.

    Exit status: 0, or 1 when --policies would write something else; 2 when a file is wrong.

    Example: sidemirror policy replay talk.jsonl --policies my-policies --changes
    """
    log.configure("error")
    settings = load(default_path(), os.environ)
    zone = settings.identity.zone
    live = loader.load(list(settings.policies), models=_models())
    tried = loader.load(policies, models=_models()) if policies else None
    turns = replaying.turns_of(transcript, zone)
    compared = tried is not None
    with opened(settings) as embedder:
        value = classifier(embedder)
        shown = replaying.played(turns, live if compared else None, tried or live, zone, value, Console(stderr=True))
    if as_json:
        typer.echo(json.dumps(replaying.as_data(shown, compared=compared), ensure_ascii=False, indent=2))
    else:
        replaying.show(shown, Console(highlight=False), compared=compared, only_changes=compared and only_changes)
    differs = any(change.mark != "=" for one in shown for change in one.changes)
    raise typer.Exit(1 if differs else 0)


def _print(rules: list[dict[str, Any]], *, every: bool) -> None:
    console = Console()
    table = Table("rule", "outcome", "conditions", "would write")
    for rule in rules:
        if every or rule["outcome"] in ("matched", "dropped the event"):
            seen = [f"{'✓' if one['holds'] else '✗'} {one['condition']}: {one['value']}" for one in rule["conditions"]]
            made = [draft["content"] for draft in rule["drafts"]]
            made += [f"{slot['slot']} = {slot['value']}" for slot in rule["slots"]]
            table.add_row(rule["rule_id"], rule["outcome"], escape("\n".join(seen)), escape("\n".join(made)))
    console.print(table if table.rows else "no rule matches; --all shows what each asked for")
