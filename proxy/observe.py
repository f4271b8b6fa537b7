"""What is new in a request: hashes of messages, the part not said before, the question to recall for, and its events.

Pure. In: the messages of a request and the answer. Out: hashes, slices and `Event`s.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from functools import partial
from hashlib import blake2b
from typing import Any

import orjson

from proxy.language import detect
from proxy.types import Answer, Event, Message, ToolCall, ToolStatus

_SYSTEM = ("system", "developer")
_SHORT_CHARS = {"zh": 8, "en": 24, "other": 12}
_MAX_QUESTION_CHARS = 8_000
_MAX_CONTEXT_CHARS = 600
_POINTING = re.compile(
    r"那|这个|它|他们?|她|刚才|上面|继续|然后呢|为什么呢?|怎么办"
    r"|\b(?:it|that|this|those|them|he|she|why|how so|and then|go on)\b",
    re.IGNORECASE,
)
_FAILED = re.compile(
    # Opens like an error; "error rate: 2 %", "no error", "失败：0" tell of none.
    r"\A\s*(?:\w*(?:Error|Exception)\b(?!-free|\s+(?:rate|handling|count|budget)|[:\s]*(?:0|none|null)\b)"
    r"|Traceback \(most recent|fatal:|panic:"
    r"|[^\W\d没无未零不]{0,8}(?:错误|失败|出错|异常)了?\s*(?:[。！!，,；;（(\[]|\Z|[:：](?!\s*(?:0|无|没有)(?![\dx]))))"
    r"|(?:exit(?:ed)?(?: with)?(?: code| status)?|returncode|退出码)(?:\s*[:=：为]+\s*| +)[1-9]\d*\b",
    re.IGNORECASE,
)


def content_hash(
    role: str, text: str, calls: Sequence[ToolCall] = (), tool_call_id: str | None = None, other: Iterable[str] = ()
) -> str:
    """Hash of one message alone: the same when the client sends it again, whatever white space it trimmed.

    Args:
        role: Its role.
        text: Its text.
        calls: Tool calls; ids and names count (clients reformat arguments).
        tool_call_id: The call it answers.
        other: A mark for each part that is no text.

    Returns:
        32 hex digits.
    """
    digest = blake2b(digest_size=16)
    named = [piece for call in calls for piece in (call.id, call.name)]
    for piece in (role, text.strip(), tool_call_id or "", str(len(named)), *named, *other):
        encoded = piece.encode("utf-8", "surrogatepass")
        digest.update(len(encoded).to_bytes(8, "big"))  # no two lists of pieces read the same
        digest.update(encoded)
    return digest.hexdigest()


def chained(messages: Iterable[Message]) -> tuple[Message, ...]:
    """The messages with their rolling hashes; system and developer messages do not count (they carry clocks)."""
    chain, result = "", []
    for message in messages:
        if message.role not in _SYSTEM:
            chain = blake2b(f"{chain}\0{message.hash}".encode(), digest_size=16).hexdigest()
        result.append(replace(message, chain=chain))
    return tuple(result)


def answer_hash(answer: Answer) -> str:
    """Hash of the answer as the message that the client will send back."""
    return answer.hash or content_hash("assistant", answer.text, answer.tool_calls)


def session_link(user_hash: str, assistant_hash: str) -> str:
    """What ties a later request to the session in which its last assistant message was relayed.

    Args:
        user_hash: Content hash of the user message before it ("" when there is none).
        assistant_hash: Content hash of the assistant message.
    """
    return blake2b(f"{user_hash}\0{assistant_hash}".encode(), digest_size=16).hexdigest()


@dataclass(frozen=True, slots=True)
class Conversation:
    """A request's messages, cut where its new part begins.

    Args:
        messages: All of them.
        new: Those after the last assistant message, without system ones.
        earlier: Those before, without system ones.
        context: The last assistant message; None at a thread's start.
    """

    messages: tuple[Message, ...]
    new: tuple[Message, ...]
    earlier: tuple[Message, ...]
    context: Message | None

    @property
    def chain(self) -> str:
        """Rolling hash of the whole request."""
        return self.messages[-1].chain if self.messages else ""

    @property
    def newest_user(self) -> Message | None:
        """The newest user message."""
        return _user_before(self.messages)

    @property
    def in_tool_loop(self) -> bool:
        """Whether the model is in the middle of its work: what was said last was not said by a user.

        System messages after it do not count: some front ends repeat their instructions there.
        """
        last = next((message for message in reversed(self.messages) if message.role not in _SYSTEM), None)
        return last is None or last.role != "user"

    @property
    def asked_before(self) -> Message | None:
        """The user's message before the last assistant message; None where there is none."""
        if self.context is None:
            return None
        index = max(i for i, message in enumerate(self.messages) if message.role == "assistant")
        return _user_before(self.messages[:index])

    @property
    def link(self) -> str | None:
        """The session link of the last assistant message; None at a thread's start."""
        return None if self.context is None else session_link(_hash(self.asked_before), self.context.hash)

    def answer_link(self, answer: Answer) -> str:
        """The session link that the answer to this request will have."""
        return session_link(_hash(_user_before(self.messages)), answer_hash(answer))


def _user_before(messages: Sequence[Message]) -> Message | None:
    return next((message for message in reversed(messages) if message.role == "user"), None)


def _hash(message: Message | None) -> str:
    return "" if message is None else message.hash


def conversation(messages: tuple[Message, ...]) -> Conversation:
    """Cut a request's messages at the last assistant message."""
    last = max((i for i, message in enumerate(messages) if message.role == "assistant"), default=-1)
    return Conversation(
        messages,
        new=tuple(message for message in messages[last + 1 :] if message.role not in _SYSTEM),
        earlier=tuple(message for message in messages[: max(last, 0)] if message.role not in _SYSTEM),
        context=messages[last] if last >= 0 else None,
    )


def question(talk: Conversation) -> str | None:
    """What to recall for.

    Args:
        talk: The request.

    Returns:
        The newest user message; a short or pointing one with the exchange before it; None in a tool loop, or when the
        user's message has no text.
    """
    user = talk.newest_user
    newest = _ends(user.text.strip()) if user else ""
    if talk.in_tool_loop or not newest:
        return None
    short = len(newest) <= _SHORT_CHARS[detect(newest)]
    if not short and not (len(newest) <= 3 * _SHORT_CHARS[detect(newest)] and _POINTING.search(newest)):
        return newest
    said = [message.text.strip() for message in talk.messages if message.role in ("user", "assistant")]
    before = [text[:_MAX_CONTEXT_CHARS] for text in said[:-1] if text][-2:]
    return "\n".join([*before, newest])


def _ends(text: str) -> str:
    """A long message's beginning and end, where what is asked for stands; what is pasted between would take long."""
    half = _MAX_QUESTION_CHARS // 2
    return text if len(text) <= _MAX_QUESTION_CHARS else f"{text[:half]}\n{text[-half:]}"


def tool_status(text: str, data: Any) -> ToolStatus:
    """Whether a tool's result tells of a failure.

    Args:
        text: The result.
        data: The result parsed as JSON, or None.

    Returns:
        ``error`` on a filled JSON `error` field, `ok: false`, `success: false`, `status: "error"`, a non-zero exit code
        or a text that opens like an error; else ``ok``.
    """
    failed = _tells_of_failure(data) if isinstance(data, dict) else _FAILED.search(text[:2_000]) is not None
    return "error" if failed else "ok"


def _tells_of_failure(data: Mapping[str, Any]) -> bool:
    return (
        bool(data.get("error"))
        or data.get("ok") is False
        or data.get("success") is False
        or True in (data.get("isError"), data.get("is_error"))
        or str(data.get("status", "")).lower() in ("error", "failed", "failure")
        or data.get("exit_code", data.get("returncode", 0)) not in (0, None, "0")
    )


def events(
    new: Sequence[Message],
    context: Message | None,
    answer: Answer | None,
    *,
    at: datetime,
    user_id: str,
    agent_id: str,
    turn: int,
    user_text: str,
    in_play: bool = False,
) -> Iterator[Event]:
    """The events of one turn, in the order they happened.

    Args:
        new: What the request newly said, guarded.
        context: The assistant message before it, for pairing tool results with their calls.
        answer: What the model answered; None when it gave none.
        at: When the request came.
        user_id, agent_id: The owner's.
        turn: 1-based number of the turn in its session.
        user_text: The newest user text, which in a tool loop lies before `new`.
        in_play: Whether the messages before `new` have opened a play that still goes on.
    """

    make = partial(Event, at=at, user_text=user_text, agent_id=agent_id, user_id=user_id, turn=turn)
    calls = {call.id: call for call in (context.tool_calls if context else ())}
    for message in new:
        language = detect(message.text or user_text)
        of_message = partial(make, text=message.text, language=language, message_hash=message.hash)
        if message.role == "user" and message.text.strip():
            yield of_message(type="user_message", role="user", in_play=in_play)
        elif message.role == "tool":
            yield _tool_result(message, calls.get(message.tool_call_id or ""), of_message)
    if answer is not None and answer.status == "complete":
        yield from _of_answer(answer, partial(make, language=detect(answer.text or user_text)))


def _of_answer(answer: Answer, make: Callable[..., Event]) -> Iterator[Event]:
    of_answer = partial(
        make,
        text=answer.text,
        role="assistant",
        message_hash=answer_hash(answer),
        finish_reason=answer.finish_reason,
    )
    if answer.text.strip():
        yield of_answer(type="assistant_message")
    yield of_answer(type="turn_end")


def _tool_result(message: Message, call: ToolCall | None, make: Callable[..., Event]) -> Event:
    data = parsed(message.text)
    return make(
        type="tool_result",
        role="tool",
        tool=(call.name if call else message.name) or "",
        arguments=call.arguments if call else None,
        data=data,
        status=tool_status(message.text, data),
        tool_call_id=message.tool_call_id,
    )


def parsed(text: str) -> Any:
    """A tool's result as JSON data; None when it is none, or a bare scalar.

    >>> parsed('{"a": 1}')
    {'a': 1}
    >>> parsed('42') is None
    True
    """
    if not text.lstrip().startswith(("{", "[")):
        return None
    try:
        return orjson.loads(text)  # stricter than json: no NaN, no half characters, nothing that JSON cannot give back
    except orjson.JSONDecodeError:
        return None
