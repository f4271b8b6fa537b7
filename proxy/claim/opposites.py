"""Values of one thing that exclude each other, in both languages: who wants the one does not want the other.

Data only.
"""

from __future__ import annotations

from proxy.claim.lexicon import listed

_OPPOSITES = """
dark light bright
hot cold iced warm
short long brief detailed concise verbose terse lengthy thorough
window aisle
early late
spicy mild
sweet salty savoury savory bitter unsweetened dry
formal informal casual
tab space
metric imperial
left right
public private
daily weekly monthly hourly yearly quarterly nightly
sync async synchronous asynchronous
upstair downstair
single double twin
vegetarian vegan omnivore meat-eater pescatarian
enabled disabled
on off
married single divorced engaged widowed
remote onsite on-site hybrid
fast slow
loud quiet
firm soft
big large small tiny
british american
morning-person night-owl
left-handed right-handed
manual automatic
always never
indoor outdoor
uppercase lowercase
snake_case camelcase kebab-case
深色 浅色 暗色 亮色 深 浅
冰 热 常温 冷
短 长 简短 详细 简洁 冗长 精简 啰嗦
靠窗 靠过道 靠走道 中间
早 晚
甜 咸 苦 辣
微辣 中辣 特辣 不辣 重辣
正式 随意 口语化 轻松 严肃
公制 英制
左 右
公开 私有
每天 每日 每周 每月 每小时 每年 每季度
同步 异步
大 小
单人 双人
有糖 无糖 全糖 半糖 少糖
素食 荤食
开启 关闭 打开 启用 禁用
已婚 未婚 单身 离异
远程 坐班 现场
制表符 空格
手动 自动
室内 室外
软 硬
中文 英文 英语 日文 日语 法语 法文 德语 德文 双语
"""
_GROUPS = [listed(line) for line in _OPPOSITES.strip().splitlines()]
OPPOSITE_OF = {
    word: frozenset(number for number, group in enumerate(_GROUPS) if word in group)
    for group in _GROUPS
    for word in group
}
"""The groups that a word is in; two words of one group exclude each other."""
