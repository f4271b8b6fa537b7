"""The nouns that the claims are read by: of which there is one, who is a person, which words only join others.

Data only, for both languages.
"""

from __future__ import annotations

import re

from proxy.claim.lexicon import listed
from proxy.claim.wording import stem

SLOTS = frozenset(
    map(
        stem,
        listed("""
name port version branch password address email phone number birthday color colour timezone zone manager boss
owner lead deadline budget size language framework database editor shell os system provider region theme font
format limit timeout interval url host path prefix currency unit stack runtime registry bucket tier role title
position department company employer school city hometown nationality height weight age grade plan broker store
cache bank plate model brand level wife husband partner spouse capital default gateway queue tool linter
formatter tracker IDE browser landlord mentor supervisor appointment flight owner coverage pool window domain
hub mail extension style convention encoding charset account desk seat office home policy schedule frequency
period rate threshold quota target goal capacity
"""),
    )
)
"""Of each of these a thing has one: its name, its port, its version."""
KIN = listed("""
aunt boss brother cat child colleague cousin dad daughter dog father friend grandfather grandmother husband kid
manager mom mother mum neighbor neighbour roommate sister son uncle wife
""")
"""Of these somebody may have several, or they are people with a life of their own."""
THINGS = listed("""
apartment bike boat camera car computer flat house keyboard laptop motorcycle mouse phone tablet
""")
"""What a thing is said to be, it is alone: a car that is a Toyota is no Honda."""
MANNERS = listed("""
chinese english french german japanese json list markdown point prose spanish table yaml
""")
"""How an answer or a text can be."""
ADVERBS = listed("""
actually all already also always both currently generally instead just mainly mostly much normally now often
only personally primarily really recently sometimes still strongly typically usually very
""")
PREPOSITIONS = listed("""
about after around as at before between by during each every for from if in into near on onto over per since
through to under until via when while with within
""")

ZH_LANGUAGES = listed("中文 英文 英语 日文 日语 法语 法文 德语 德文 韩语 韩文 双语 汉语 普通话 粤语")
_ZH_SLOTS = """
名字 名称 端口 版本 版本号 分支 密码 地址 邮箱 电话 手机 手机号 生日 颜色 时区 经理 上司 老板 负责人 领导 截止日
截止日期 期限 预算 大小 命名 缩进 编码 字符集 认证 鉴权 色调 配色 风格 注释 提交信息 工位 座位 办公室 位置 语言
框架 数据库 编辑器 系统 服务商 区域 主题 字体 格式 上限 下限 超时 超时时间 间隔 网址 域名 主机 路径 前缀 货币
单位 公司 学校 城市 家乡 老家 国籍 身高 体重 年龄 血型 星座 职业 职位 岗位 专业 部门 浏览器 输入法 缓存 网关
队列 工具 车牌 车牌号 品牌 型号 妻子 丈夫 老公 老婆 男朋友 女朋友 导师 班主任 医生 首都 套餐 时间 日期 频率 周期
方式 策略 命令 级别 等级 抬头 目标
"""
ZH_SLOTS = re.compile(rf"(?:{'|'.join(_ZH_SLOTS.split())}|默认.*|最.*的.*)$")
"""Of each of these a thing has one."""
_ZH_OF_MANY = """
爱好 特点 优点 缺点 问题 原因 任务 计划 朋友 同事 客户 技能 需求 兴趣 习惯 依赖 组件 成员 用户 项目 书 歌 菜 课
"""
ZH_OF_MANY = re.compile(rf"(?:{'|'.join(_ZH_OF_MANY.split())})$")
"""Of these somebody may have any number."""
_ZH_KIN = """
妈 爸 父亲 母亲 哥 姐 弟 妹 爷爷 奶奶 外公 外婆 叔叔 阿姨 舅舅 儿子 女儿 孩子 老婆 老公 妻子 丈夫 室友 邻居 同学 狗 猫
"""
ZH_KIN = re.compile(rf"(?:{'|'.join(_ZH_KIN.split())})$")
_SURNAMES = (
    "赵钱孙李周吴郑王冯陈褚卫蒋沈韩杨朱秦许何吕张孔曹严华金魏陶姜谢邹苏潘葛范彭鲁韦马方任袁柳唐罗薛雷贺汤"
    "郝于傅齐康余顾孟黄萧尹姚邵汪毛戴宋庞熊纪舒屈项祝董梁杜阮席季江童郭梅林徐邱骆高夏蔡田胡霍万柯卢莫房丁"
    "邓洪石崔程陆翁叶白刘龙段侯武谭廖曾肖"
)
ZH_PERSON = re.compile(rf"^(?:[小老阿].|[{_SURNAMES}].{{1,2}}|.*(?:经理|老师|医生|总|工|姐|哥))$")
_ZH_JOBS = """
师 员 生 家 手 官 长 工 经理 总监 顾问 司机 老板 教练 主播 博主 店主 律师 会计 护士
运营 销售 客服 学者 记者 作者 CEO CTO PM HR
"""
ZH_JOBS = re.compile(rf"(?:{'|'.join(_ZH_JOBS.split())})$")
"""Somebody is one of these by trade."""
