# Images of reconciler, one target each:
#   docker build --target plan .    plans, and applies what needs no records
#   docker build --target kafka .   the same on Kafka, and records: mirrors, copies, produce and consume
#   docker build --target spark .   and jobs on Spark, with a Java runtime; also drivers and executors on Kubernetes
FROM python:3.13-slim-trixie@sha256:ffb752e139c0a19692a43af8d8523b274222dd68eebad5d583b45c2201c6e30a AS base
ENV PIP_NO_CACHE_DIR=1 \
    PIP_DISABLE_PIP_VERSION_CHECK=1 \
    PIP_ROOT_USER_ACTION=ignore

# The package from this tree, and the versions that its tests run with.
FROM base AS build
WORKDIR /src
COPY pyproject.toml requirements.lock README.md LICENSE ./
COPY schemas schemas
COPY reconciler reconciler
RUN sed -E '/^[ #]/d; s/\[[^]]*\]//; s/ \\$//' requirements.lock > /src/constraints.txt \
    && pip install -c /src/constraints.txt hatchling hatch-fancy-pypi-readme \
    && pip wheel --no-deps --no-build-isolation --wheel-dir /wheels .

FROM build AS installed-plan
RUN python -m venv --without-pip /opt/reconciler \
    && pip --python /opt/reconciler/bin/python install -c /src/constraints.txt /wheels/*.whl

# By its name: the wheel is installed, and pip adds the libraries of the extras.
FROM installed-plan AS installed-kafka
RUN pip --python /opt/reconciler/bin/python install -c /src/constraints.txt 'stream-reconciler[kafka,records]'

FROM installed-kafka AS installed-spark
RUN pip --python /opt/reconciler/bin/python install -c /src/constraints.txt 'stream-reconciler[kafka,spark]'

# What every image has: git, which tells a plan the base branch of a pull request, and a user without rights.
FROM base AS runtime
LABEL org.opencontainers.image.title="reconciler" \
      org.opencontainers.image.description="Plan and apply for streaming platforms" \
      org.opencontainers.image.source="https://github.com/stream-reconciler/reconciler" \
      org.opencontainers.image.licenses="Apache-2.0"
# hadolint ignore=DL3008 # Debian keeps no older versions: a pinned one could not be installed for long
RUN apt-get update \
    && apt-get install --yes --no-install-recommends git \
    && rm -rf /var/lib/apt/lists/* \
    && git config --system --add safe.directory /workspace \
    && useradd --create-home --uid 10001 reconciler
ENV PATH="/opt/reconciler/bin:$PATH"
WORKDIR /workspace
ENTRYPOINT ["reconciler"]
CMD ["--help"]

FROM runtime AS spark
# hadolint ignore=DL3008 # as above
RUN apt-get update \
    && apt-get install --yes --no-install-recommends openjdk-21-jre-headless tini \
    && rm -rf /var/lib/apt/lists/*
COPY spark-entrypoint /usr/local/bin/
COPY --from=installed-spark /opt/reconciler /opt/reconciler
USER 10001
ENTRYPOINT ["tini", "--", "spark-entrypoint"]

FROM runtime AS kafka
COPY --from=installed-kafka /opt/reconciler /opt/reconciler
USER 10001

# The last one is what `docker build .` makes.
FROM runtime AS plan
COPY --from=installed-plan /opt/reconciler /opt/reconciler
USER 10001
