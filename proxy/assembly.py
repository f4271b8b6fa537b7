"""The parts that work on the layers, put together: recall, write-back, the pipeline, and what goes on beside them.

In: a `Config` and the opened `Layers`. Out: `Memory`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from proxy.background import Background, background
from proxy.config import Config
from proxy.conflict import Judge
from proxy.ending import Ending
from proxy.errors import WorkingMemoryUnavailable
from proxy.extraction.model_call import ModelCalls
from proxy.extractor import Extractor
from proxy.layers import Layers, utc_now
from proxy.library import Library
from proxy.life import Life
from proxy.metrics import Metrics
from proxy.pipeline import Pipeline
from proxy.policy.rules import PolicySet
from proxy.prepare import Preparation
from proxy.recall import Recall
from proxy.record import Recorder
from proxy.reembed import Reembedding
from proxy.remember import Helpers, Remember
from proxy.routes import Routes
from proxy.scope import Scope
from proxy.store import allowance
from proxy.store.allowance import Allowance
from proxy.sweep import Sweep
from proxy.sweeps.report import StepReport
from proxy.tokens import TokenCounter
from proxy.value import WEIGHTS, ValueModel
from proxy.worker import Worker

_THREADS = 8
_MODEL_LANES = 4


@dataclass(frozen=True)
class Memory:
    """The parts that work on the layers."""

    tokens: TokenCounter
    remember: Remember
    worker: Worker
    group: Background
    recall: Recall
    pipeline: Pipeline
    recorder: Recorder
    life: Life
    reembedding: Reembedding
    value: ValueModel | None
    threads: ThreadPoolExecutor

    async def drain(self) -> None:
        """Wait until the memories of every call that has ended are written."""
        await self.recorder.settle()
        await self.worker.drain()


async def assemble(
    config: Config, layers: Layers, library: Library, metrics: Metrics, stop: asyncio.Event, stack: AsyncExitStack
) -> Memory:
    """Put the parts together.

    Args:
        config: Settings.
        layers: What holds data.
        library: litellm, imported when first needed.
        metrics: Counts.
        stop: Set when the house goes down.
        stack: Takes what must be closed.
    """

    def policies() -> PolicySet:
        return layers.policies.current

    store, tokens = layers.store, layers.tokens
    threads = stack.enter_context(ThreadPoolExecutor(_THREADS, thread_name_prefix="memory"))
    extractor = _extractor(config, library, tokens, metrics)
    value = ValueModel.load(WEIGHTS, layers.embedder.fingerprint)
    remember = Remember(
        store,
        layers.patient,
        layers.embedder,
        policies,
        tokens.count,
        utc_now,
        metrics,
        idle_s=config.session.idle_s,
        helpers=Helpers(value, extractor, _judge(extractor), config.identity.zone),
    )
    worker = Worker(store, remember.turn, metrics, lanes=1 if extractor is None else _MODEL_LANES)
    life = _life(config, layers, remember, value, extractor, tokens, metrics, stop, stack)
    stack.callback(worker.close)
    if extractor is not None:
        # Before the worker, which may be waiting for an answer of its.
        stack.callback(extractor.close)
    group = await stack.enter_async_context(background())
    recall = Recall(store, layers.working, layers.embedder, config.recall, metrics)
    preparation = Preparation(config, store, layers.working, recall, policies, tokens)
    pipeline = Pipeline(config, preparation, policies, utc_now, metrics, threads, Routes(config.models))
    placement = config.inject.placement
    recorder = Recorder(store, preparation, policies, placement, worker.submit, metrics, threads, group.spawn)
    reembedding = Reembedding(store, layers.embedder, metrics.reembedded)
    return Memory(tokens, remember, worker, group, recall, pipeline, recorder, life, reembedding, value, threads)


def _extractor(config: Config, library: Library, tokens: TokenCounter, metrics: Metrics) -> Extractor | None:
    if not config.models:
        return None
    calls = ModelCalls(library, asyncio.get_running_loop(), tokens.count)
    return Extractor(Routes(config.models), calls, Allowance(_allowance_file(config), utc_now), metrics)


def _allowance_file(config: Config) -> Path:
    return config.data_dir / allowance.FILE


def _judge(extractor: Extractor | None) -> Callable[[Scope], Judge | None]:
    if extractor is None or not extractor.is_configured:
        return lambda _scope: None
    asked = extractor.judge
    return lambda scope: partial(asked, scope=scope)


def _life(
    config: Config,
    layers: Layers,
    remember: Remember,
    value: ValueModel | None,
    extractor: Extractor | None,
    tokens: TokenCounter,
    metrics: Metrics,
    stop: asyncio.Event,
    stack: AsyncExitStack,
) -> Life:
    idle_s, zone = config.session.idle_s, config.identity.zone

    def told(step: StepReport) -> None:
        metrics.swept(step.step, step.changed, step.failed)
        if step.step == "erase" and step.changed:
            # What was erased is to leave Redis's file as well.
            with suppress(WorkingMemoryUnavailable):
                layers.patient.rewrite()

    ending = Ending(layers.store, layers.patient, layers.store.idle_sessions, remember.happened, utc_now, idle_s=idle_s)
    remember.on_forgotten(ending.rebuild)
    sweep = Sweep(
        layers.store,
        layers.embedder,
        utc_now,
        zone,
        extractor.summarise if extractor is not None and extractor.is_configured else None,
        worth=value.score if value is not None else None,
        count_tokens=tokens.count,
        locked=remember.lock,
        told=told,
        go_on=lambda: not stop.is_set(),
    )
    threads = stack.enter_context(ThreadPoolExecutor(1, thread_name_prefix="life"))
    return Life(
        ending=ending,
        sweep=sweep,
        store=layers.store,
        remember=remember,
        policies=lambda: layers.policies.current,
        clock=utc_now,
        zone=zone,
        threads=threads,
        idle_s=idle_s,
    )
