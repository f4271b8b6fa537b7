"""The end of a session: found when nobody speaks any more, or asked for, and told to the policies as one event.

In: the store, the working layer, the clock. Out: a ``session_end`` event for each end, handed to `write`. It waits, so
it runs in a thread. An end is marked only after what came of it is written: killed in between it is told again, with
the same text under the same key, which changes nothing.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta

import structlog

from proxy.errors import SidemirrorError, StoreUnavailable, WorkingMemoryUnavailable
from proxy.plugs import Filters, SessionInfo, Store, Transaction, WorkingMemory
from proxy.scope import Scope
from proxy.summary import Line, key_of, summarise, transcript
from proxy.types import Event, Language, Memory, Slot

log = structlog.get_logger(__name__)
BACKFILL_TAG = "backfill"
"""Marks what was said before a thread came to us: it neither ends a session nor stands in its summary."""
_PAGE = 100
_MOST_RECORDS = 500
_MOST_TEXT_CHARS = 8_000
_TOOL_SLOTS = "tool."
_SLOT_NAMES: Mapping[str, tuple[str, str]] = {
    "destination": ("目的地", "Destination"),
    "date": ("日期", "Date"),
    "count": ("人数", "People"),
    "error": ("错误", "Error"),
    "tried": ("试过", "Tried"),
}
_FAILURES: Mapping[bool, str] = {True: "工具 {} 失败", False: "Tool {} failed"}
_DERIVED = ("summary", "lesson", "reflection")
_NO_LONGER_TRUE = ("superseded", "archived", "forgotten")
# Assistants guess; what they report as done or decided is told as a result.
_OF_ASSISTANT = ("task", "decision")


class Ending:
    """Ends sessions. Thread-safe as far as `write` is.

    Args:
        store: Long-term layer.
        working: Working layer.
        asleep: Sessions that the store knows as idle before an instant, at most so many, longest idle first.
        write: Puts an event before the policies and writes what comes of it (`Remember`).
        clock: Returns now, aware UTC.
        idle_s: `session.idle_s`.
    """

    def __init__(
        self,
        store: Store,
        working: WorkingMemory,
        asleep: Callable[[datetime, int], Sequence[Scope]],
        write: Callable[[Scope, Event], object],
        clock: Callable[[], datetime],
        *,
        idle_s: float = 1800,
    ) -> None:
        self._store = store
        self._working = working
        self._asleep = asleep
        self._write = write
        self._clock = clock
        self._idle = timedelta(seconds=idle_s)

    def run(self) -> int:
        """End the sessions that have gone idle; what they hold in the working layer is left to its TTL.

        Returns:
            How many ends were told. At most a page is looked at: call again until it is 0, or later.

        Raises:
            StoreUnavailable: The rest is ended another time.
        """
        before = self._clock() - self._idle
        # What they said last is not written yet.
        unfinished = {turn.scope for turn in self._store.journal_waiting()}
        told = 0
        for scope in dict.fromkeys([*self._asleep(before, _PAGE), *self._listed(before)]):
            if scope in unfinished:
                continue
            try:
                told += self._end_idle(scope, before)
            except StoreUnavailable:
                raise
            except SidemirrorError as error:
                # One session that cannot be ended must not keep all others waiting.
                log.warning("session_not_ended", error_type=type(error).__name__)
        return told

    def end(self, scope: Scope) -> bool:
        """End a session because the user says so: its working memory goes at once.

        Args:
            scope: With its session.

        Returns:
            Whether there was anything to end.

        Raises:
            StoreError: Nothing was ended.
            WorkingMemoryUnavailable: It is ended, but its slots are still there: call again.
        """
        now = self._clock()
        info = self._store.session(scope)
        if not _over(info):
            self._tell(scope, info, explicit=True)

        def end(tx: Transaction) -> bool:
            tx.thaw(scope)  # its slots may stand there
            return tx.end_session(scope, now)

        known = self._store.transact(end).result()
        return self._working.end(scope) or known

    def rebuild(self, scope: Scope) -> bool:
        """Tell an ended session's end again, after what its summary was made from has changed.

        Args:
            scope: With its session; one that has not ended is left alone.

        Returns:
            Whether there was anything to tell.
        """
        info = self._store.session(scope)
        return _over(info) and self._tell(scope, info, explicit=False)

    def event(self, scope: Scope, info: SessionInfo | None, *, explicit: bool) -> Event | None:
        """The event of a session's end.

        Args:
            scope: With its session.
            info: What the store knows of the session.
            explicit: Whether its end was asked for.

        Returns:
            None when the user stated nothing in it, or nothing since it was last summed up.
        """
        records = self._records(scope)
        lines, language = _lines(records), _language(records)
        if not any(line.role == "user" for line in lines) or self._told_already(scope, records):
            return None
        lines += _of_slots(self._slots(scope), language)
        found = summarise(lines, language)
        if not found.summary:
            return None
        turns = info.turns if info else len({one.source.message_hash for one in records if one.source.role == "user"})
        return Event(
            type="session_end",
            text=transcript(lines, language)[:_MOST_TEXT_CHARS],
            language=language,
            role="user",
            at=info.last_at if info else self._clock(),
            data={
                "summary": found.summary,
                "points": list(found.points),
                "session_id": scope.session_id,
                "turns": turns,
                "explicit": explicit,
            },
            agent_id=scope.agent_id,
            user_id=scope.user_id,
            turn=max(turns, 1),
        )

    def _end_idle(self, scope: Scope, before: datetime) -> bool:
        now = self._clock()  # before anything is read: a turn that comes meanwhile is then later than the end
        info = self._store.session(scope)
        if info is not None and info.last_at >= before:
            return False
        told = not _over(info) and self._tell(scope, info, explicit=False)
        if info is not None and not _over(info):
            self._store.transact(lambda tx: tx.end_session(scope, now)).result()
        try:
            self._working.claim_idle(scope)
        except WorkingMemoryUnavailable as error:
            log.warning("idle_session_not_claimed", error_type=type(error).__name__)
        return told

    def _tell(self, scope: Scope, info: SessionInfo | None, *, explicit: bool) -> bool:
        event = self.event(scope, info, explicit=explicit)
        if event is None:
            return False
        self._write(scope, event)
        return True

    def _listed(self, before: datetime) -> Sequence[Scope]:
        try:
            return self._working.idle_sessions(before, _PAGE)
        except WorkingMemoryUnavailable as error:
            log.warning("idle_sessions_not_listed", error_type=type(error).__name__)
            return []

    def _slots(self, scope: Scope) -> Mapping[str, Slot]:
        try:
            return self._working.slots(scope)
        except WorkingMemoryUnavailable:
            return {}

    def _records(self, scope: Scope) -> list[Memory]:
        """What this owner's session left, oldest first, in any state."""
        filters = Filters(state=None, session_id=scope.session_id)
        page = self._store.list(scope, filters, limit=_MOST_RECORDS)
        whose = (scope.user_id, scope.agent_id)
        # Another agent's session, or in shared records another user's, may have the same name.
        mine = [one for one in page.items if (one.user_id, one.agent_id) == whose and not _is_derived(one)]
        return sorted(mine, key=lambda one: (one.created_at, one.id))

    def _told_already(self, scope: Scope, records: Sequence[Memory]) -> bool:
        if scope.session_id is None:
            return False
        whose = (scope.user_id, scope.agent_id, scope.session_id)
        of_session = self._store.by_key(scope, key_of(scope.session_id))
        former = [one for one in of_session if (one.user_id, one.agent_id, one.session_id) == whose]
        newest = max((one.created_at for one in records), default=None)
        return bool(former) and newest is not None and newest < max(one.created_at for one in former)


def _over(info: SessionInfo | None) -> bool:
    """Whether a session has ended and was not gone on with."""
    return info is not None and info.ended_at is not None and info.ended_at >= info.last_at


def _is_derived(memory: Memory) -> bool:
    return memory.kind in _DERIVED or memory.memory_type == "reflective" or BACKFILL_TAG in memory.tags


def _lines(records: Sequence[Memory]) -> list[Line]:
    # A raw turn holds the old value of whatever was corrected since.
    stale = {one.source.message_hash for one in records if one.state in _NO_LONGER_TRUE and one.kind != "turn"}
    lines = [
        line
        for one in records
        if one.state == "active" and not (one.kind == "turn" and one.source.message_hash in stale)
        for line in _line(one)
    ]
    return list(dict.fromkeys(lines))


def _line(memory: Memory) -> Iterator[Line]:
    role, kind = memory.source.role, memory.kind
    if role == "tool":
        # Only that it failed: a tool's words are nobody's we know, and must not gain trust by being summed up.
        if kind == "tool_failure":
            text = _FAILURES[memory.language == "zh"].format(memory.source.tool or "?")
            yield Line(text, kind, "tool")
    elif role == "assistant":
        if kind in _OF_ASSISTANT:
            yield Line(memory.content, kind, "assistant")
    else:
        yield Line(memory.content, kind, "user")


def _of_slots(slots: Mapping[str, Slot], language: Language) -> list[Line]:
    """What was noted of the task in hand, as one line; what tools gave is left out."""
    place, colon, comma = (0, "：", "，") if language == "zh" else (1, ": ", ", ")
    noted = [
        f"{_SLOT_NAMES.get(name, (name, name))[place]}{colon}{' '.join(str(slot.value).split())}"
        for name, slot in sorted(slots.items())
        if not name.startswith(_TOOL_SLOTS) and isinstance(slot.value, str | int | float)
    ]
    return [Line(comma.join(noted), "slot")] if noted else []


def _language(records: Sequence[Memory]) -> Language:
    spoken = Counter(one.language for one in records if one.source.role == "user")
    return spoken.most_common(1)[0][0] if spoken else "other"
