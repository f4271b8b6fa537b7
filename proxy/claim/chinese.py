"""The claims of a short Chinese sentence: what stands before the verb, the verb, and what stands after it.

Pure and without a segmenter: the verb is the first of a closed list (`lexicon`) that can be one where it stands.
"""

from __future__ import annotations

import re

from proxy.claim.lexicon import ZH_VERBS, listed
from proxy.claim.nouns import ZH_JOBS, ZH_KIN, ZH_LANGUAGES, ZH_OF_MANY, ZH_PERSON, ZH_SLOTS
from proxy.claim.types import Claim, Valued
from proxy.claim.wording import IDEOGRAPH, words

Words = tuple[str, ...]
_LEAD = re.compile(
    r"^(?:用户(?:更正|说过|说|提到|表示|让记住|要求|决定|确认)[：:,，]\s*|更正[：:]\s*|记住[，,：:]?\s*|其实|不对[，,]\s*)+"
)
_CLAUSES = re.compile(r"[，,；;。]\s*(?:但是?|而且|并且|同时|所以)?")
_USER = re.compile(r"^(?:用户|用戶|我们|咱们|我|本人)(?P<owns>家?的)?(?:这边|那边|自己|本人|个人)?")
_AT_PRESENT = re.compile(
    r"现在|目前|当前(?=住|在|用)|如今|已经?|一直|平时|平常|一般|通常|主要|其实|正在|总是|经常|每次|统一|特别|非常|比较|很"
    r"|真的|(?<![成首京古故花帝大])都|就(?![职业读诊医餐])|也(?!门)|还(?![款价原债])|会(?=推|保|发|存|在|写|部)"
)
_WISH = re.compile(r"^(?:希望|要求|想要|想让|想|需要|规定)(?=.{3})")
_VERB = re.compile("|".join(sorted(map(re.escape, ZH_VERBS), key=len, reverse=True)))
_AT_WORK = re.compile(r"^在(?P<at>.+?)(?:上班|工作|任职|就职|实习|教书|当差)(?:了)?$")
_TOWARDS = re.compile(r"^对(?P<what>.+?)(?P<no>不|没有?)?(?P<how>过敏|感兴趣|反感)(?:了)?$")
_WORKS_AS = re.compile(r"^在(?P<at>[^做当]{1,14}?)(?:做|当|担任|从事)(?P<what>.+)$")
_BEFORE_VERB = re.compile(r"(?:改成|改为|换成|变成|改)(?=跑|部署|运行|用|使用|放|存|写|发|推|住|由|叫|坐|托管)")
_STUDIES = re.compile(r"^在(?P<at>.+?)(?:读书|读研|读博|念书|上学|求学|读大学|上大学)(?:了)?$")
_BECOMES = re.compile(
    r"^(?P<slot>.{1,16}?)(?:被)?(?:改|换|调整?|升级?|降级?|迁移?|搬|切换|推迟|提前|变更?|更新)(?:成|到|为|至)了?(?P<what>.+)$"
)
_LIES = re.compile(r"^(?P<slot>.{2,12}?)在(?P<what>.+)$")
_LIVES = re.compile(r"^(?P<no>不)?在(?P<at>.+?)(?:居住|定居|生活)(?:了)?$")
_GRADE = re.compile(
    r"^(?:在)?(?:上|读|念)(?P<what>.*(?:年级|小学|初中|高中|大学|幼儿园|研究生|班|[大研高初][一二三四]))$"
)
_ANY_JOB_FIRST = re.compile(
    r"^(?!.{0,2}(?:喜欢|偏|习惯|爱|一直|主要|改))(?P<job>[^\W\d不没别从在的]{2,8}?)(?:时|的时候)?(?:习惯|喜欢)?"
    r"(?:用的是|使用|用)(?P<tool>[^户途处意]+)$"
)
_STATE = re.compile(r"^(?P<no>还?[没未]有?|不)?(?P<what>结婚|离婚|毕业|退休|离职|怀孕|抽烟|吸烟|喝酒)(?:了)?$")
_SLOT = re.compile(
    r"^(?P<slot>.{1,20}?)(?:默认|设置|暂定|固定|改|换)?(?P<how>是|为|叫|在|成|到|使用|采用|用)(?P<what>.+)$"
)
_ATTRIBUTE = re.compile(r"^.{1,14}的.{1,8}$")
"""Of what "X 的 Y" names there is one, unless Y is a person or one of these."""
_MUST = re.compile(r"(?:必须要?|应该要?|应当|需要|务必|一律|要|得|请)$")
# 会 in 会议, 用 in 用户, 为 in 因为: parts of other words.
_SHORT_VERBS = frozenset("会用为看学有要打写开爱读听去住由想跑见归")
_ENDS_WORDS = frozenset("议户了什关习生校名目点发始车头客法源好")
_OPENS_WORDS = frozenset("因使应费作信专所只拥机聚例晚公可运试")
_CHANGED_TO = listed("改用 换用 换成 改成 换为 切换到 切到 换到 迁移到 迁到 改为")
_AGED = re.compile(r"^(?P<who>.*?)(?:今年)?(?P<what>\d+岁(?:半)?)$")
_JOB_VERB = (
    "管理|写|做|记|处理|开发|编辑|部署|画|构建|打包|测试|搭建|监控|调试|追踪|跟踪|剪辑|翻译|备份|编译|看|听|回答|联系|沟通"
    "|支付|付|学|练|拍|查|导航|通勤|上班|出行|办公|开会"
)
_JOB_FIRST = re.compile(
    rf"^(?P<job>(?:{_JOB_VERB}).{{0,10}}?)(?:时|的时候|上|方面)?(?:更|最)?"
    r"(?P<how>更?喜欢用|喜欢|偏好用?|偏爱用?|习惯用|选择|使用|用|是用|用的是)(?P<tool>.+)$"
)
_USING = re.compile(
    rf"^(?P<tool>[A-Za-z0-9 .+#_-]+?|[{IDEOGRAPH}]{{1,6}})(?:来|去)?"
    rf"(?P<job>(?:{_JOB_VERB}|跑|存|安装|管|发|缓存|控制).*)$"
)
_NEGATED = re.compile(r"(?:不再|不想|不要|不能|不会|不太|不怎么|不|没有|没|别|从不|从来不|无法|禁止|不应该?|不可以?)$")
_ASPECT = re.compile(r"^[了着过]|[了啦呢吧啊]$")
_MEASURE = re.compile(r"^\d+(?:只|个|辆|条|台|位|名|套|间|本|份|把|张|双|杯|部|款)")
_UNTASTED = re.compile(r"^(?:吃|喝|使用|用|坐)(?=.)")
_ADDED_SPEECH = re.compile(r"^(?:所有的?|全部的?|每个)")


def read(text: str) -> tuple[Claim, ...]:
    """The claims of a sentence in plain form (`wording.plain`).

    >>> [claim] = read("用户偏好用 pnpm 管理前端依赖")
    >>> claim.subject, claim.predicate, claim.value, claim.valued
    (('user',), 'use', ('pnpm',), 'one')
    >>> read("用户对花生不过敏")[0].positive, read("哈哈哈")
    (False, ())
    """
    found: list[Claim] = []
    subject: Words | None = None
    for clause in _CLAUSES.split(_LEAD.sub("", text.strip(" 。.！!"))):
        claim = _clause(clause.strip(), subject)
        if claim is not None:
            found.append(claim)
            subject = claim.subject
    return tuple(found)


def _clause(clause: str, inherited: Words | None) -> Claim | None:
    user = _USER.match(clause)
    rest = clause[user.end() :] if user else clause
    owner: Words | None = ("user",) if user and not user["owns"] else None if user else inherited
    rest = _AT_PRESENT.sub("", _ASPECT.sub("", rest)).strip()
    if wish := _WISH.match(rest):
        inner = _sentence(rest[wish.end() :], None)
        if inner is not None and inner.subject != ("user",):
            return inner
    return _sentence(rest, owner, owned=bool(user and user["owns"]))


def _sentence(rest: str, owner: Words | None, *, owned: bool = False) -> Claim | None:
    rest = _ADDED_SPEECH.sub("", rest.strip())
    rest = _BEFORE_VERB.sub("", rest)
    if match := _AGED.match(rest):
        return Claim(words(match["who"]) or owner or ("user",), "age", words(match["what"]), (), "one")
    if owner != ("user",) and (match := _BECOMES.match(rest)):
        return Claim(
            words(match["slot"].removesuffix("已")), "become", words(_ASPECT.sub("", match["what"])), (), "one"
        )
    if (match := _SLOT.match(rest)) and _is_slot(*match.groups(), owned=owned):
        return _of_slot(match["slot"], match["what"])
    if owner is not None and (claim := _idiom(rest, owner)):
        return claim
    if owner is None and (match := _LIES.match(rest)) and not _VERB.search(rest.replace("在", "", 1)):
        return Claim(words(match["slot"]), "at", words(match["what"]), (), "one")
    for match in _VERB.finditer(rest):
        before, verb, after = rest[: match.start()], match.group(), rest[match.end() :]
        if not _may_be_verb(before, verb, after):
            continue
        positive = True
        if negated := _NEGATED.search(before):
            positive, before = False, before[: negated.start()]
        return _claim(before, verb, after, owner, positive)
    return None


def _may_be_verb(before: str, verb: str, after: str) -> bool:
    if verb in _SHORT_VERBS:
        if after[:1] in _ENDS_WORDS and verb + after[:1] not in ("用了", "有了"):
            return False
        if before[-1:] in _OPENS_WORDS and verb not in ("看", "写"):
            return False
    return bool(after.strip()) or verb in ("过敏",)


def _is_slot(slot: str, how: str, what: str, *, owned: bool) -> bool:
    if how == "在" and _VERB.search(what):
        return False  # 公司在杭州有分部
    if ZH_SLOTS.search(slot):
        return True
    single = owned or _ATTRIBUTE.match(slot) is not None
    return how in ("是", "叫") and single and not ZH_OF_MANY.search(slot) and (how == "叫" or not ZH_KIN.search(slot))


def _of_slot(slot: str, what: str) -> Claim:
    value = what.removesuffix("了").strip()
    negated = re.match(r"不", value)
    predicate = "language" if value in ZH_LANGUAGES else "be:like" if value.endswith("的") else "be:slot"
    return Claim(words(slot), predicate, words(value), (), "one", not negated)


def _idiom(rest: str, owner: Words) -> Claim | None:
    """Forms whose value stands inside or before the verb."""
    if match := _AT_WORK.match(rest):
        return Claim(owner, "work", words(match["at"]), (), "one")
    if match := _WORKS_AS.match(rest):
        return Claim(owner, "work", words(match["at"] + match["what"]), (), "one")
    if match := _STUDIES.match(rest):
        return Claim(owner, "school", words(match["at"]), (), "one")
    if match := _LIVES.match(rest):
        return Claim(owner, "live", words(match["at"]), (), "one", not match["no"])
    if match := _TOWARDS.match(rest):
        predicate = {"过敏": "allergic", "感兴趣": "interest", "反感": "like"}[match["how"]]
        positive = not match["no"] and match["how"] != "反感"
        return Claim(owner, predicate, words(match["what"]), (), "many", positive)
    if match := _GRADE.match(rest):
        return Claim(owner, "grade", words(match["what"]), (), "one")
    if match := _JOB_FIRST.match(rest):
        return Claim(owner, "use", words(match["tool"]), (("for", words(match["job"])),), "one")
    if match := _ANY_JOB_FIRST.match(rest):
        return Claim(owner, "use", words(match["tool"]), (("for", words(match["job"])),), "one")
    if match := _STATE.match(rest):
        return Claim(owner, "state", words(match["what"]), (), "many", not match["no"])
    return None


def _claim(before: str, verb: str, after: str, owner: Words | None, positive: bool) -> Claim:
    predicate, valued = ZH_VERBS[verb]
    before = _MUST.sub("", before.strip(" 的"))
    if owner == ("user",) and verb in _CHANGED_TO:
        predicate, valued = "use", "many"
    subject, frame = (words(before) or ("user",), {}) if owner is None else (owner, {"when": words(before)})
    if owner is None and (idiom := _grade_of(before, verb + after)):
        return idiom
    after = _ASPECT.sub("", after.strip()).strip(" 的")
    if predicate in ("send", "at"):
        after = re.sub(r"[上里中]$", "", after).strip()
    if predicate == "dislike":
        predicate, positive = "like", not positive
    if verb.endswith("不了"):
        positive = False
        predicate = ZH_VERBS[verb[0]][0]
    if predicate == "like":
        after = _UNTASTED.sub("", after)
    if predicate in ("like", "use") and (using := _USING.match(after)):
        frame["for"] = words(using["job"])
        after, predicate, valued = using["tool"], "use", "one"
    if after in ZH_LANGUAGES and predicate in ("write", "use", "be", "answer") and subject != ("user",):
        predicate, valued = "language", "one"
    if predicate == "be":
        predicate, valued = _being(subject, before, after)
    value = words(after.removesuffix("区") if predicate == "live" else after)
    kept = tuple(sorted((mark, inner) for mark, inner in frame.items() if inner))
    return Claim(subject, predicate, value, kept, valued, positive)


def _grade_of(before: str, rest: str) -> Claim | None:
    if match := _GRADE.match(rest):
        return Claim(words(before.removesuffix("在")) or ("user",), "grade", words(match["what"]), (), "one")
    return None


def _being(subject: Words, before: str, after: str) -> tuple[str, Valued]:
    """What sort of thing the subject is said to be: only values of one sort compete."""
    if subject != ("user",):
        if ZH_SLOTS.search(before):
            return "be:slot", "one"
        if re.match(r"[A-Z]", after) or re.search(r"\d", after):
            return "be:name", "one"
        if not ZH_PERSON.match(before) and not ZH_KIN.search(before) and not after.endswith("的"):
            return "be:such", "rival"
    if re.match(r"\d", after) and not _MEASURE.match(after):
        return "be:number", "one"
    if ZH_JOBS.search(after):
        return "be:job", "rival"
    return "be:such", "many"
