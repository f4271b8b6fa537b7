"""The words that the claims are read by: predicates of both languages, and how many values they have.

Data only. Closed lists: a sentence that they do not cover is compared by its wording (`likeness`).
"""

from __future__ import annotations

from proxy.claim.types import Valued


def listed(text: str) -> frozenset[str]:
    """The words of a list."""
    return frozenset(text.split())


def _read(*tables: tuple[Valued, str]) -> dict[str, tuple[str, Valued]]:
    """Each verb with its predicate and how many values that has; the first place where it is listed counts."""
    read: dict[str, tuple[str, Valued]] = {}
    for valued, table in tables:
        for line in table.strip().splitlines():
            predicate, _, forms = line.partition(": ")
            for form in forms.split():
                read.setdefault(form, (predicate, valued))
    return read


# ── predicate: its verbs ───────────────────────────────────────────────────────────────────────────────────────────
_EN_ONE = """
live: live reside move relocate
work: work
name: call name
weigh: weigh
listen: listen bind
expire: expire
last: last
cost: cost charge
drive: drive
report: report
belong: belong
commute: commute
wake: wake
start: start begin
end: end finish close
open: open
keep: keep retain
host: host base deploy run locate
store: store save
send: send push forward route
write: write author
track: track
manage: manage
schedule: schedule
build: build
log: log
ship: ship release
publish: publish
default: default
point: point
format: format
answer: answer reply respond
happen: happen occur
rotate: rotate
poll: poll
sleep: sleep
identify: identify
back: back
limit: limit cap
allow: allow
retry: retry
time: time
scale: scale
sync: sync
due: due
leave: leave
become: change switch rename shift increase lower reduce bump upgrade migrate update postpone reschedule
arrive: arrive
return: return
pay: pay
earn: earn
sign: sign
stay: stay
type: type
"""
_EN_RIVAL = """
sit: sit
stand: stand
meet: meet
train: train
target: target
encode: encode
compress: compress
park: park
mean: mean
authenticate: authenticate
lead: lead
measure: measure
communicate: communicate
peak: peak
"""
_EN_MANY = """
like: like prefer love enjoy adore favour favor
dislike: dislike hate detest avoid loathe
have: have own possess
speak: speak
know: know understand
visit: visit
read: read
watch: watch
buy: buy purchase
play: play
learn: learn study
smoke: smoke
eat: eat
drink: drink
cook: cook
collect: collect
support: support
include: include contain comprise feature
want: want wish need
plan: plan intend hope
attend: attend
follow: follow
see: see
try: try
fix: fix solve resolve
complete: complete
make: make
create: create
add: add
give: give
ask: ask
say: say mention
find: find
use: use employ
teach: teach
practise: practise practice
breed: breed
go: go travel fly
join: join
help: help
volunteer: volunteer
subscribe: subscribe
sell: sell
grow: grow
paint: paint
sing: sing
swim: swim
ride: ride
hike: hike
win: win
lose: lose
handle: cope tolerate handle
listen-to: hear
decide: decide
choose: choose
think: think
raise: raise
adopt: adopt
admire: admire
remember: remember
recommend: recommend
require: demand require
bring: bring
miss: miss
worry: worry
care: care
discuss: discuss
take: take
treat: treat
do: do perform
edit: edit
test: test
draft: draft
debug: debug
set: set configure
hold: hold
exercise: exercise
present: present
trust: trust
monitor: monitor
organise: organise organize
process: process
serve: serve
connect: connect
depend: depend rely
produce: produce
wear: wear
carry: carry
record: record
render: render
review: review
maintain: maintain
book: book
order: order
call: call
pick: pick
open-to: apply
share: share
"""
EN_VERBS = _read(("one", _EN_ONE), ("rival", _EN_RIVAL), ("many", _EN_MANY))

_ZH_ONE = """
live: 住在 居住在 居住于 定居在 定居于 搬到 搬去 搬回 现居 家住 家在 常住 住
work: 任职于 就职于 供职于
name: 名字叫 名叫 取名叫 取名 叫做 叫作 叫 名为
origin: 来自 出生于 出生在 老家在
be: 默认是 默认为 设置为 设置成 设为 设成 配置为 固定为 等于 应为 应该是 必须是 改为 改成
be: 改到 改用 换成 换为 换用 变成 变为 调整为 调整到 升级到 升级为 迁移到 迁到 切换到
be: 切换为 切到 换到 选了 选用 选定 选择 定在 定为 安排在 是 为
drive: 开着 开
send: 推送到 推送至 传到 传至 推送给 推到 发送到 发送至 发送给 发到 发往 发给 通知到
send: 上报到 同步到 导出到 上传到 提交到 写入 写到
at: 部署在 部署到 部署于 运行在 跑在 托管在 托管于 存放在 存放于 存储在 存储于 保存在 保存到
at: 放在 存在 存到 位于 挂在 绑定在 绑定到 安装在 装在
listen: 监听在 监听 占用
keep: 保留 留存 保存 存储 存
write: 撰写 编写 书写 写成 写
answer: 回答 回复
school: 毕业于 就读于
job: 担任 从事
report: 汇报给 向上汇报
price: 售价 定价 收费
weigh: 体重
tall: 身高
expire: 过期 到期
start: 开始于 始于 起于 上线于
belong: 属于 隶属于 归
by: 由
follow: 遵循 遵守 沿用
birthday: 生于
wake: 起床
manage: 管理
"""
_ZH_MANY = """
like: 更喜欢 最喜欢 喜欢上 喜欢 喜爱 热爱 偏爱 偏好 偏向 倾向于 倾向 钟爱 爱好 爱
dislike: 讨厌 反感 厌恶 排斥 受不了 避免
have: 养着 养了 养有 养 拥有 有着 有
speak: 会说 会讲 会用 精通 掌握 熟悉 擅长 懂 会
visit: 去过 到过 游览过 去 飞 飞往
read: 读过 看过 读了 看了 读 看 听过 听
buy: 买过 买了 买 购买 入手
eat: 吃不了 吃过 吃 喝不了 喝 喝过
play: 玩 打 踢 弹 练
learn: 在学 学习 学过 学
want: 想要 需要 计划 打算 准备 希望 要求 想 要
use: 正在用 使用 采用 选用 惯用 常用 用的是 用着 用
allergic: 过敏
support: 依赖 引用 引入 安装 支持 兼容 包含 包括 提供 覆盖
attend: 参加 参与 加入 关注 订阅
own: 负责 跟进 维护
fix: 修复 解决 完成 处理 遇到 发现
meet: 认识 见过 见
avoid: 戒了 戒
run: 跑 爬 游
smoke: 抽 吸
"""
ZH_VERBS = _read(("one", _ZH_ONE), ("many", _ZH_MANY))

_EN_IRREGULAR = """
has=have had=have does=do did=do goes=go went=go gone=go kept=keep sent=send wrote=write written=write
built=build ran=run took=take drove=drive bought=buy met=meet made=make read=read set=set held=hold sold=sell
grew=grow won=win lost=lose ate=eat drank=drink spoke=speak spoken=speak began=begin woke=wake slept=sleep
left=leave paid=pay gave=give found=find saw=see said=say taught=teach flew=fly rode=ride wore=wear chose=choose
thought=think brought=bring led=lead knew=know sang=sing swam=swim
"""
EN_IRREGULAR = dict(pair.split("=") for pair in _EN_IRREGULAR.split())
EN_JOBS = listed("""
authenticate back build call communicate commute debug deploy do draft edit format forward host identify keep
like log manage monitor order organise organize pay plan prefer process publish push record release render
review route run save send ship sign store take test track train use want write
""")
"""With an object these have a tool, place or form beside it: "takes notes in Obsidian", "sends alerts to Slack"."""
