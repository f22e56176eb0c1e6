# The decision service: docs/container.md. Two stages, so that the image has no compiler.
ARG PYTHON=3.13-slim-trixie

FROM python:${PYTHON} AS build
# hadolint ignore=DL3008  the base image pins Debian's release
RUN apt-get update \
    && apt-get install --yes --no-install-recommends gcc libc6-dev \
    && rm -rf /var/lib/apt/lists/*
WORKDIR /source
COPY pyproject.toml setup.py MANIFEST.in constraints.txt README.md LICENSE ./
COPY src src
ENV PIP_NO_CACHE_DIR=1 PIP_DISABLE_PIP_VERSION_CHECK=1
RUN python -m venv /opt/deferkit \
    && PIP_CONSTRAINT=constraints.txt /opt/deferkit/bin/pip install ".[serve]" \
    && /opt/deferkit/bin/pip uninstall --yes pip

FROM python:${PYTHON}
LABEL org.opencontainers.image.title="deferkit" \
      org.opencontainers.image.description="Decision service: who decides, the model or an expert?" \
      org.opencontainers.image.licenses="Apache-2.0"
# hadolint ignore=DL3008  libgomp1 is what LightGBM loads
RUN apt-get update \
    && apt-get install --yes --no-install-recommends libgomp1 \
    && rm -rf /var/lib/apt/lists/* \
    && groupadd --gid 10001 deferkit \
    && useradd --uid 10001 --gid deferkit --home-dir /data --no-create-home --shell /usr/sbin/nologin deferkit \
    && install --directory --owner deferkit --group deferkit --mode 0700 /data
COPY --from=build /opt/deferkit /opt/deferkit
ENV PATH=/opt/deferkit/bin:$PATH \
    PYTHONDONTWRITEBYTECODE=1 \
    PYTHONUNBUFFERED=1 \
    DEFERKIT_HOST=0.0.0.0 \
    DEFERKIT_PORT=8080 \
    DEFERKIT_STORE=/data/deferkit.db
USER 10001:10001
WORKDIR /data
# the only folder that is written to: the root file system may be read-only
VOLUME ["/data"]
EXPOSE 8080
STOPSIGNAL SIGTERM
HEALTHCHECK --interval=10s --timeout=3s --start-period=20s --retries=3 \
    CMD ["python", "-c", "import os, urllib.request as r; r.urlopen('http://127.0.0.1:' + os.environ['DEFERKIT_PORT'] + '/readyz', timeout=2)"]
ENTRYPOINT ["deferkit"]
CMD ["serve"]
