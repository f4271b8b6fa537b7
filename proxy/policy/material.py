"""What of a message its writer says, and what is only carried in it: code, quoted mail, a text to work on. Pure."""

from __future__ import annotations

import regex

from proxy.policy.literals import lowered

_FENCE = regex.compile(r"(?:```|~~~).*?(?:```|~~~|\Z)", regex.S)
_QUOTED_LINE = regex.compile(r"^[ \t]*[>|].*$", regex.M)
_FLAGS = regex.IGNORECASE | regex.M
_COLONS = (":", "：")
_HEADER_MARKS = ("---", "===", "dear", "尊敬的", "traceback (most")
"""What a header without a colon holds, in small letters."""
_HEADER = regex.compile(
    r"^[ \t]*(?:(?:From|To|Cc|Subject|Date|Sent|发件人|收件人|主题|抄送|日期)\s*[:：].*$"
    r"|(?:Dear\s+\w+|尊敬的).{0,30}$|(?:-{3,}|={3,})\s*$|Traceback \(most)",
    _FLAGS,
)
_ANNOUNCED = regex.compile(
    r"(?:以下|下面|如下|这[段篇封个条首]|原文|正文|文章|邮件|聊天记录|日志|代码|报错信息)"
    r"[^\n。！？：:]{0,24}[：:][ \t]*\n"
    r"|(?:翻译|译成|润色|改写|校对|总结|概括|摘要|提取|续写|缩写|扩写|纠错)[^\n：:。！？]{0,24}[：:]"
    r"|\b(?:translate|rewrite|rephrase|paraphrase|proofread|summari[sz]e|polish|edit|extract|classify|correct|analy[sz]e"
    r"|review|shorten)\b"
    r"[^\n:.!?]{0,60}:"
    r"|\b(?:here(?:'s| is| are)|the following|below"
    r"|this (?:email|mail|text|article|message|log|letter|note|review|paragraph))\b"
    r"[^\n:.!?]{0,40}:[ \t]*\n",
    _FLAGS,
)


def own_part(message: str) -> str:
    """What of a message the writer says: code blocks, quoted lines, and pasted material after its announcement are cut.

    Args:
        message: A whole message.

    Returns:
        The part before and between; the announcement itself stays.

    >>> own_part("My name is Ann. Summarize this mail:\\nDear Bob, I live in Rome.")
    'My name is Ann. Summarize this mail:'
    >>> own_part("> I like tea\\nI do not.").strip()
    'I do not.'
    >>> own_part("翻译：我喜欢茶"), own_part("请看\\n发件人：李雷\\n我喜欢茶").strip()
    ('翻译：', '请看')
    """
    text = _FENCE.sub("\n", message) if "```" in message or "~~~" in message else message
    if ">" in text or "|" in text:
        text = _QUOTED_LINE.sub("", text)
    # Most messages hold no colon, and then neither an announcement nor most headers: two looks instead of two searches.
    colon = any(map(text.__contains__, _COLONS))
    small = lowered(text)
    ends: list[int] = []
    if colon or small is None or any(map(small.__contains__, _HEADER_MARKS)):
        ends += [found.start() for found in [_HEADER.search(text)] if found]
    if colon:
        ends += [len(text[: found.end()].rstrip()) for found in [_ANNOUNCED.search(text)] if found]
    return text[: min(ends)] if ends else text
