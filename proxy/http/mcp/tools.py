"""The tools at work: a caller, a tool's name and arguments → an `Answer`. It waits, so it runs in the API's threads.

Reads go through `Recall`, writes through `Remember`: the same guard, conflict step and read-back as everything else.
What a model can mend is answered as an error that says how; it is never raised.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime, tzinfo
from typing import Any, assert_never

import structlog
from pydantic import ValidationError

from proxy.auth import Principal
from proxy.errors import SidemirrorError, StoreError, VersionConflict
from proxy.http.bodies import USER_KINDS
from proxy.http.mcp import told
from proxy.http.mcp.arguments import (
    ForgetArguments,
    ForgetFilter,
    SearchArguments,
    TimeRange,
    Today,
    UpdateArguments,
    WriteArguments,
)
from proxy.http.mcp.catalogue import MAX_FORGOTTEN, TOOLS, Tool
from proxy.http.mcp.told import Answer
from proxy.plugs import Filters, Store
from proxy.policy.rules import PolicySet
from proxy.recall import Recall
from proxy.remember import Remember
from proxy.scope import Scope
from proxy.types import Draft, Memory, Source

log = structlog.get_logger(__name__)
DOOR = "mcp"
"""Names this door where rule ids stand."""

_NO_IDENTITY = (
    "It is not known whose memories are meant, so nothing was read or written. You cannot mend this: tell the user "
    "that the connection to Sidemirror must name them (header X-Memory-User, or --user), and go on without memory."
)


class _Refused(SidemirrorError):
    """What was asked is not done; the message tells the model why, and what to do."""


@dataclass(frozen=True, slots=True)
class Caller:
    """Who calls.

    Args:
        principal: What the key may.
        scope: Whose memories; None while nobody knows.
    """

    principal: Principal
    scope: Scope | None


@dataclass(frozen=True)
class Tools:
    """The tools. Thread-safe.

    Args:
        store, recall, remember: What they work on.
        policies: Returns the live policy set.
        clock: Returns now, aware UTC.
        zone: `identity.timezone`, that times without a zone are in.
    """

    store: Store
    recall: Recall
    remember: Remember
    policies: Callable[[], PolicySet]
    clock: Callable[[], datetime]
    zone: tzinfo

    def offered(self, caller: Caller) -> list[Tool]:
        """The tools that the caller's key may use."""
        return [tool for tool in TOOLS if caller.principal.may(tool.permission)]

    def call(self, caller: Caller, name: str, arguments: Mapping[str, Any]) -> Answer:
        """Call a tool.

        Args:
            caller: Who calls.
            name: Which tool.
            arguments: As the model sent them.

        Returns:
            The answer; an error says what to do next.
        """
        try:
            return self._called(caller, name, arguments)
        except _Refused as error:
            return Answer(str(error))
        except VersionConflict:
            return Answer(
                "The memory changed meanwhile, and was left alone. Search for it again, then repeat the change."
            )
        except StoreError as error:
            return Answer(f"Memory cannot be used now: {error}. Go on without it, and tell the user.")
        except Exception as error:
            # A client of an older protocol would be sent the exception's text.
            log.exception("mcp_tool_failed", tool=name, error_type=type(error).__name__)
            return Answer("Sidemirror failed to do this; its log says more. Go on without memory, and tell the user.")

    def _called(self, caller: Caller, name: str, arguments: Mapping[str, Any]) -> Answer:
        tool = next((tool for tool in TOOLS if tool.name == name), None)
        if tool is None:
            known = ", ".join(tool.name for tool in TOOLS)
            raise _Refused(f"There is no tool {name!r}. Call one of: {known}.")
        if not caller.principal.may(tool.permission):
            raise _Refused(
                f"The key of this connection lacks the permission {tool.permission!r}, so {name} does nothing. "
                "Do not try again; tell the user that the key in config.yaml needs it."
            )
        if caller.scope is None:
            raise _Refused(_NO_IDENTITY)
        asked = self._read(tool, arguments)
        match asked:
            case SearchArguments():
                return self._search(caller.scope, asked)
            case WriteArguments():
                return self._write(caller.scope, asked)
            case UpdateArguments():
                return self._update(caller, caller.scope, asked)
            case ForgetArguments():
                return self._forget(caller, caller.scope, asked)
            case _:
                assert_never(asked)

    def _read(
        self, tool: Tool, arguments: Mapping[str, Any]
    ) -> SearchArguments | WriteArguments | UpdateArguments | ForgetArguments:
        try:
            asked = tool.arguments.model_validate(dict(arguments), context=Today(self.clock(), self.zone))
        except ValidationError as error:
            said = [
                f"{'.'.join(str(step) for step in one['loc']) or 'arguments'}: {_plainly(one['msg'])}"
                for one in error.errors(include_url=False, include_context=False, include_input=False)
            ]
            allowed = ", ".join(tool.arguments.model_fields)
            raise _Refused(
                f"{tool.name} was not done. {'; '.join(said)}. It takes {allowed}. Mend this, and call it again."
            ) from error
        assert isinstance(asked, SearchArguments | WriteArguments | UpdateArguments | ForgetArguments)
        return asked

    # ── reading ────────────────────────────────────────────────────────────────────────────────────────────────
    def _search(self, scope: Scope, asked: SearchArguments) -> Answer:
        span = asked.time_range or TimeRange()
        filters = Filters(
            memory_type=asked.memory_type, tags=asked.tags, created_after=span.after, created_before=span.before
        )
        hits = self.recall.search(
            scope, asked.query, now=self.clock(), policies=self.policies(), top_k=asked.top_k, filters=filters
        )
        return told.found(hits, self.zone)

    # ── writing ────────────────────────────────────────────────────────────────────────────────────────────────
    def _write(self, scope: Scope, asked: WriteArguments) -> Answer:
        policy_hash = self.policies().hash
        draft = Draft(
            rule_id=DOOR,
            policy_hash=policy_hash,
            content=asked.content,
            memory_type=asked.memory_type,
            kind=asked.kind,
            scope=asked.scope or ("user" if asked.kind in USER_KINDS else "agent"),
            confidence=asked.confidence,
            language="other",
            tags=asked.tags,
            on_conflict="supersede",
        )
        # A model says it, so it replaces what a model or a tool said, but stands beside what the user said, and brings
        # back nothing that was forgotten: whether the user wants that, nobody can tell from here. To overrule the user
        # takes memory_update, which names the memory.
        source = Source(role="assistant", session=scope.session_id, rule=DOOR, policy_hash=policy_hash)
        written = self.remember.put(scope, draft, source)
        if written.memory is None:
            raise _Refused(
                f"It was not remembered: {written.outcome.reason}. Do not try again now; tell the user if it matters."
            )
        return told.stored(written, written.memory, asked.content)

    def _update(self, caller: Caller, scope: Scope, asked: UpdateArguments) -> Answer:
        if asked.content is None and asked.confidence is None:
            raise _Refused("Nothing was changed: give content, confidence or both.")
        memory = self._own(caller, scope, asked.memory_id)
        if memory.state == "superseded":
            raise _Refused(f"{memory.id} was replaced by {memory.superseded_by}; correct that one.")
        following = replace(
            memory,
            content=asked.content if asked.content is not None else memory.content,
            confidence=asked.confidence if asked.confidence is not None else memory.confidence,
        )
        changed = self.remember.change(scope, following, expected_version=memory.version)
        stored = self.store.get(scope, memory.id)
        if stored is None or stored.version < changed.version:
            raise _Refused("The correction could not be read back. Search for the memory, and repeat it.")
        return told.changed(stored, asked.content)

    def _forget(self, caller: Caller, scope: Scope, asked: ForgetArguments) -> Answer:
        if (asked.memory_id is None) == (asked.filter is None):
            raise _Refused("Nothing was forgotten: give either memory_id or filter.")
        if asked.memory_id is not None:
            memory_ids = [self._own(caller, scope, asked.memory_id).id]
        else:
            assert asked.filter is not None
            memory_ids = self._matching(caller, scope, asked.filter)
        return told.erased(memory_ids, self.remember.forget(scope, memory_ids) if memory_ids else 0)

    def _matching(self, caller: Caller, scope: Scope, asked: ForgetFilter) -> list[str]:
        if not asked.narrows:
            raise _Refused("Nothing was forgotten: the filter needs at least one of text, kind, tags, older_than.")
        filters = Filters(
            state=None,  # what was replaced or archived is to be gone, too
            memory_type=asked.memory_type,
            kind=asked.kind,
            tags=asked.tags,
            created_before=asked.older_than,
            text=asked.text,
        )
        page = self.store.list(scope, filters, limit=MAX_FORGOTTEN + 1)
        if len(page.items) > MAX_FORGOTTEN:
            raise _Refused(
                f"Nothing was forgotten: the filter matches more than {MAX_FORGOTTEN} memories. Ask the user what "
                "exactly should go, and narrow it with more text, a kind, tags or older_than."
            )
        return [one.id for one in page.items if one.scope != "shared" or caller.principal.may("shared:write")]

    def _own(self, caller: Caller, scope: Scope, memory_id: str) -> Memory:
        memory = self.store.get(scope, memory_id)
        if memory is None:
            raise _Refused(
                f"There is no memory {memory_id!r} that you may read. Call memory_search, and take the id from it."
            )
        if memory.scope == "shared" and not caller.principal.may("shared:write"):
            raise _Refused(f"{memory_id} is shared by all users, and this connection may not change it. Tell the user.")
        return memory


def _plainly(message: str) -> str:
    """Pydantic's words without its prefix."""
    return message.removeprefix("Value error, ")
