"""What of a message its writer says, and what is only carried in it: code, quoted mail, a text to work on. Pure."""

from __future__ import annotations

import regex

from proxy.policy.listing import without_listings
from proxy.policy.literals import lowered
from proxy.shelf import compiled

_FENCE = compiled(r"(?:```|~~~).*?(?:```|~~~|\Z)", regex.S)
_QUOTED_LINE = compiled(r"^[ \t]*[>|].*$", regex.M)
_FLAGS = regex.IGNORECASE | regex.M
_COLONS = (":", "：")
_HEADER_MARKS = ("---", "===", "dear", "尊敬的", "traceback (most")
"""What a header without a colon holds, in small letters."""
_HEADER = compiled(
    r"^[ \t]*(?:(?:From|To|Cc|Subject|Date|Sent|发件人|收件人|主题|抄送|日期)\s*[:：].*$"
    r"|(?:Dear\s+\w+|尊敬的).{0,30}$|(?:-{3,}|={3,})\s*$|Traceback \(most)",
    _FLAGS,
)
_ANNOUNCED = compiled(
    r"(?:以下|下面|如下|这[段篇封个条首]|原文|正文|文章|邮件|聊天记录|日志|代码|报错信息)"
    r"[^\n。！？：:]{0,24}[：:][ \t]*\n"
    r"|(?:翻译|译成|润色|改写|校对|总结|概括|摘要|提取|续写|缩写|扩写|纠错)[^\n：:。！？]{0,24}[：:]"
    r"|\b(?:translate|rewrite|rephrase|paraphrase|proofread|summari[sz]e|polish|edit|extract|classify|correct"
    r"|analy[sz]e"
    r"|review|shorten)\b"
    r"[^\n:.!?]{0,60}:"
    r"|\b(?:here(?:'s| is| are)|the following|below"
    r"|this (?:email|mail|text|article|message|log|letter|note|review|paragraph))\b"
    r"[^\n:.!?]{0,40}:[ \t]*\n",
    _FLAGS,
)
_OPENING_TAG = compiled(r"<(?P<name>[A-Za-z][\w-]{0,40})(?:\s[^<>]{0,400}+)?>")
_OWN_ELEMENTS = frozenset(
    {
        *("user_query", "user_message", "user_input", "user", "query", "question", "message", "task", "feedback"),
        *("prompt", "b", "i", "u", "s", "em", "strong", "code", "kbd", "sub", "sup"),
    }
)
_OF_ONESELF = compiled(
    r"记住|记一下|记下|记着|我的(?:个人)?(?:情况|信息|资料|偏好|喜好|要求|背景|习惯)|关于我(?!的)"
    r"|\bremember\b|\babout\s+me\b|\bmy\s+(?:own\s+)?(?:preferences|setup|details|situation|habits|requirements)\b",
    regex.IGNORECASE,
)
_TO_BE_WORKED_ON = compiled(
    r"翻译|译成|润色|改写|校对|总结|概括|摘要|提取|续写|缩写|扩写|纠错|朋友|同事|客户|邮件|文章|聊天记录"
    r"|\b(?:translate|rewrite|rephrase|paraphrase|proofread|summari[sz]e|polish|edit|extract|classify|correct|review|shorten"
    r"|friend|colleague|customer|e-?mail|article|message|letter)",
    regex.IGNORECASE,
)
_TEXT_ZH = (
    r"(?:[段篇封条首份张句]|文[本章字案]|邮件|信|日志|代码|报错|错误信息|合同|条款|表格?|数据|记录|评论|差评|好评"
    r"|反馈|评价|通知|公告|材料"
    r"|简历|陈述|作文|论文|摘要|新闻|帖子|对话|聊天|内容|原文|会议纪要|纪要|清单|消息|短信|回复|留言|介绍|稿子?|台词"
    r"|歌词|配置)"
)
_TEXT_EN = (
    r"(?:texts?|e-?mails?|mails?|messages?|articles?|letters?|notes?|reviews?|paragraphs?|passages?|essays?"
    r"|statements?|posts?"
    r"|tweets?|comments?|feedback|logs?|stack\s?traces?|tracebacks?|outputs?|errors?|code|snippets?|config\w*|csv"
    r"|tables?|data"
    r"|exports?|rows|spreadsheets?|contracts?|clauses?|terms|agreements?|transcripts?|chats?|conversations?|threads?"
    r"|minutes"
    r"|resumes?|cvs?|cover\s+letters?|bios?|drafts?|abstracts?|reports?|documents?|docs?|descriptions?|lists?|to-?dos?"
    r"|quotes?|poems?|lyrics|songs?|speech(?:es)?|scripts?|sections?|excerpts?|repl(?:y|ies)|tickets?|complaints?"
    r"|surveys?"
    r"|answers?|response|responses|listings?|ads?|memos?|announcements?|summary|stories|story|content)"
)
_WORD = compiled(
    # One of them is in each line that `_HANDED` matches.
    r"[译写校结括要取色错顺类分纳看瞧读查改析释理回评审这下上附贴给收]"
    r"|\b(?:th[eio]|here|below|attach|past|trans|re[wpvasc]|para|proof|summ?|sum\s|tl|polish|copy|short|class|spell"
    r"|gramm|tidy|clean|tone|answer"
    r"|check|fix|impr|edit|corr|anal|expl|look|go|parse|extr|what|count|find|comp|help|i\s|got)",
    _FLAGS,
)
_HANDED = compiled(
    # A line that asks for a text to be worked on, with the text on the lines below it.
    r"(?:翻译|译成|译文|润色|改写|校对|总结|概括|摘要|提取|续写|缩写|扩写|纠错|改错|通顺|分类|打分|归纳)[^\n]{0,40}$"
    rf"|(?:看|瞧|读|查|改|检查|分析|解释|处理|整理|回复?|解读|评价|点评|审)[^\n，,。]{{0,6}}?(?:这|下面|以下|上面"
    rf"|我(?:的|写)|他|她|客户|同事|老板|学生|朋友|同学|室友|孩子|儿子|女儿|[堂表][弟妹姐哥]"
    rf"|别人)[^\n。]{{0,14}}?{_TEXT_ZH}[^\n]{{0,40}}$"
    rf"|^\W*(?:这(?:是|里是?|有)|以下是?|下面是?|附上|贴一?下|给你|收到了?)[^\n。]{{0,20}}?{_TEXT_ZH}[^\n]{{0,40}}$"
    rf"|(?:这|下面|以下)[^\n。，]{{0,8}}{_TEXT_ZH}[^\n]{{0,16}}(?:什么意思|怎么(?:回|改|看|办|写)|哪里|有什么问题"
    rf"|是不是|是真|真的假|靠不靠谱|可信|有没有|对不对|啥意思|对吗|行吗|如何)[^\n]{{0,20}}$"
    r"|\b(?:translate|rewrite|rephrase|reword|paraphrase|proof-?read|summari[sz]e|sum\s+up|tl;?dr|polish|copy-?edit"
    r"|shorten|classify"
    r"|spell-?check|grammar|tidy\s+up|clean\s+up|tone\s+down|transcribe)\b[^\n]{0,100}$"
    r"|\b(?:reply|respond|answer)\s+(?:to\s+)?(?:this|these|the|him|her|them|my|our)\b[^\n]{0,80}$"
    rf"|\b(?:read|review|check|fix|improve|edit|correct|analy[sz]e|explain|look\s+(?:at|over|through)|go\s+(?:over"
    rf"|through)|parse|extract|what\s+do"
    rf"|what(?:'s|\s+is|\s+does)|count|find|compare|help\s+(?:me\s+)?with)\b[^\n.]{{0,30}}?"
    rf"\b(?:this|these|those|the|my|our|his|her|their|that|\w+'s)\s+(?:[\w-]+\s+){{0,3}}?{_TEXT_EN}\b[^\n]{{0,80}}$"
    rf"|\b(?:here(?:'s|\s+is|\s+are)|below\s+(?:is|are)|attached|pasting|i\s+(?:got|received|found)|got|they\s+sent)\s+"
    rf"(?:[\w',-]+\s+){{0,5}}?{_TEXT_EN}\b[^\n]{{0,80}}$"
    rf"|\b(?:this|these|the\s+following)\s+(?:[\w-]+\s+){{0,2}}?{_TEXT_EN}\b[^\n]{{0,60}}$",
    _FLAGS,
)
_COMES_BACK = compiled(
    # After the text: the writer again, pointing back at it.
    r"\n[ \t]*\n?(?=[ \t]*(?:以上|上面|就是这些|就这些|PS\b|P\.S\.|(?:that|those|this)(?:'s|\s+(?:is|was|were"
    r"|are))\s+(?:it|all|the|what|from|his|her|their)"
    r"|(?:the\s+)?above\b|end\s+of\s+(?:text|mail|quote)))",
    regex.I,
)
_SALUTATION = compiled(
    r"^[ \t]*(?:hi|hello|hey|dear|good\s+(?:morning|afternoon|evening)|您好|你好|各位|亲爱的|尊敬的)\b?"
    r"[^\n]{0,40}[,，:：!！][ \t]*$",
    _FLAGS,
)
_SIGNED = compiled(
    r"\n[ \t]*(?:(?:(?:kind|best|warm)\s+)?(?:regards|wishes)|best|cheers|thanks|thank\s+you|many\s+thanks|sincerely"
    r"|yours(?:\s+\w+)?|love"
    r"|此致|敬礼|祝好|顺祝商祺|谢谢)[,，!！.。]?[ \t]*\n[ \t]*[^\n]{1,60}(?:\n|\Z)",
    _FLAGS,
)
_ASKING_LINES = 4
_ASKING_CHARS = 240
_LONG_CHARS = 700
_LONG_PARAGRAPHS = 3
_SHORT_CHARS = 160
_REQUEST = compiled(
    r"[?？]\s*$|[:：]\s*$|^\W*(?:(?:请|麻烦|帮|给我|把|能不能|可以)|(?:please|can|could|would|will|what|how|why|is"
    r"|are|do|does|help|give"
    r"|make|tell|thoughts|any|need|i\s+need|write|find|pick|turn|put)\b)",
    regex.I,
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
    >>> own_part("can you check my friend's letter\\nI live in Rome.\\n\\nThat's it. I prefer short comments.")
    "can you check my friend's letter\\n\\nThat's it. I prefer short comments."
    >>> own_part("<document>\\nI live in Rome.\\n</document>\\n<task>I use vim</task>").strip()
    'I use vim'
    >>> own_part("以下是我的情况：\\n我住在北京").strip(), own_part("以下是他的情况：\\n我住在北京")
    ('我住在北京', '以下是他的情况：')
    """
    text = _FENCE.sub("\n", message) if "```" in message or "~~~" in message else message
    text = _without_elements(text) if "</" in text else text
    if ">" in text or "|" in text:
        text = _QUOTED_LINE.sub("", text)
    # Most messages hold no colon, and then neither an announcement nor most headers: two looks instead of two searches.
    colon = any(map(text.__contains__, _COLONS))
    announced = _ANNOUNCED.search(text) if colon else None
    if announced and _of_oneself(text, announced):  # that announces no material, and says nothing
        text = f"{text[: announced.start()]}\n{text[announced.end() :]}"
        announced = _ANNOUNCED.search(text)
    small = lowered(text)
    ends: list[int] = []
    if colon or small is None or any(map(small.__contains__, _HEADER_MARKS)):
        ends += [found.start() for found in [_HEADER.search(text)] if found]
    if announced:
        ends.append(len(text[: announced.end()].rstrip()))
    if "\n" in text.strip():
        ends += _handed(text)
    if not ends:
        return without_listings(text)
    end = min(ends)
    back = _COMES_BACK.search(text, end)
    return without_listings(text[:end]) + (text[back.start() :] if back else "")


def _without_elements(text: str) -> str:
    """Without what stands in tags: documents, files and reminders that front ends and agents put into the message. What
    is tagged as the user's own stays, without its tags."""
    kept, at = [], 0
    for opening in _OPENING_TAG.finditer(text):
        end = text.find(f"</{opening['name']}>", opening.end()) if opening.start() >= at else -1
        if end >= 0:
            own = opening["name"].lower() in _OWN_ELEMENTS
            kept += [text[at : opening.start()], text[opening.end() : end] if own else "\n"]
            at = end + len(opening["name"]) + 3
    return "".join([*kept, text[at:]])


def _of_oneself(text: str, announced: regex.Match[str]) -> bool:
    """Whether the writer announces their own account of themselves, and not as a text to be worked on."""
    line = text[text.rfind("\n", 0, announced.start()) + 1 : announced.end()]
    return _OF_ONESELF.search(line) is not None and _TO_BE_WORKED_ON.search(line) is None


def _handed(text: str) -> list[int]:
    """Where a text begins that is handed over on lines of its own, without a colon."""
    ends = _asked_for(text)
    letter = _SALUTATION.search(text)
    if letter and text[: letter.start()].strip() and _SIGNED.search(text, letter.end()):
        ends.append(letter.start())
    if len(text.encode("utf-8", "replace")) >= _LONG_CHARS:
        ends += _long(text)
    return ends


def _asked_for(text: str) -> list[int]:
    """The end of the first short line that hands the text below it over; nobody pastes much before."""
    start = 0
    for line in text.split("\n", _ASKING_LINES)[:-1]:
        end = start + len(line)
        if _WORD.search(line) and len(line) <= _ASKING_CHARS and _HANDED.search(line):
            return [end]
        start = end + 1
    return []


def _long(text: str) -> list[int]:
    """A long text of several paragraphs under a short request is what the request is about."""
    first, _, rest = text.partition("\n")
    paragraphs = [one for one in rest.split("\n") if len(one) > _SHORT_CHARS // 4]
    if len(first) <= _SHORT_CHARS and len(paragraphs) >= _LONG_PARAGRAPHS and _REQUEST.search(first.rstrip()):
        return [len(first)]
    return []
