# Five images: train-cpu, train-gpu, serve-cpu, serve-gpu, edge (docs/containers.md).
#   docker build --target serve-cpu -t paddleport:serve-cpu .
# Which versions fit each other stands in paddleport/pairs.py; `paddleport doctor` judges every image by it at its build.
# Two bases with the same Python at the same place: one that has pip, and one for what runs.
ARG BUILD_BASE=python:3.11.13-slim-bookworm
ARG BASE=python:3.11.13-slim-bookworm

FROM ${BUILD_BASE} AS build
WORKDIR /src
# Without pip within, so that no image for serving holds it; to those for training PaddleSlim brings it, which imports it.
RUN python3 -m venv --without-pip /opt/paddleport
ENV INSTALL="python3 -m pip --python /opt/paddleport/bin/python install --no-cache-dir --constraint constraints.txt"
COPY constraints.txt pyproject.toml README.md LICENSE ./
COPY paddleport ./paddleport

FROM build AS build-serve
# No Paddle, no Gymnasium, no training code.
COPY serve ./serve
FROM build-serve AS build-serve-cpu
RUN ${INSTALL} ".[serve]"
FROM build-serve AS build-serve-gpu
RUN ${INSTALL} ".[serve-gpu]"

FROM build AS build-train
COPY train ./train
COPY quantize ./quantize
COPY export ./export
FROM build-train AS build-train-cpu
RUN ${INSTALL} ".[quantize,export,atari]"
FROM build-train AS build-train-gpu
# Paddle's own index of its GPU builds, for the CUDA of paddleport/pairs.py (cu126).
ARG PADDLE_INDEX
RUN test -n "${PADDLE_INDEX}" || { echo "give Paddle's package index for cu126: --build-arg PADDLE_INDEX=..."; exit 1; } \
    && case "${PADDLE_INDEX}" in *cu126*) ;; *) echo "PADDLE_INDEX is not one for cu126"; exit 1 ;; esac \
    && ${INSTALL} --extra-index-url "${PADDLE_INDEX}" ".[train-gpu]"
FROM build-train AS build-edge
RUN ${INSTALL} ".[edge]"

FROM ${BASE} AS runtime
LABEL org.opencontainers.image.title="paddleport" \
      org.opencontainers.image.description="A reinforcement-learning policy from training in PaddlePaddle to int8, ONNX, a policy server and edge code" \
      org.opencontainers.image.licenses="Apache-2.0"
# What the base has of pip goes, and nothing but /tmp stays writable for everybody.
RUN rm -rf /usr/local/lib/python3.*/site-packages/pip* /usr/local/lib/python3.*/site-packages/setuptools* \
      /usr/local/lib/python3.*/site-packages/wheel* /usr/local/lib/python3.*/ensurepip /usr/local/bin/pip* \
    && chmod 0755 /var/tmp \
    && if [ -d /run/lock ]; then chmod 0755 /run/lock; fi \
    && useradd --system --uid 10001 --home-dir /nonexistent --no-create-home --shell /usr/sbin/nologin paddleport
ENV PATH=/opt/paddleport/bin:/usr/local/bin:/usr/bin:/bin \
    HOME=/tmp \
    PYTHONUNBUFFERED=1 \
    PYTHONDONTWRITEBYTECODE=1 \
    PYTHONSAFEPATH=1
ENTRYPOINT ["paddleport"]

FROM runtime AS serve
# Behind 0.0.0.0 the server starts with PADDLEPORT_AUTH_TOKEN_FILE only, or with an explicit PADDLEPORT_INSECURE=1.
ENV PADDLEPORT_MODELS=/models \
    PADDLEPORT_HOST=0.0.0.0 \
    PADDLEPORT_PORT=8000 \
    PADDLEPORT_CACHE=/var/cache/paddleport
RUN install -d /models && install -d -o 10001 -g nogroup -m 0755 /var/cache/paddleport
WORKDIR /models
VOLUME ["/models", "/var/cache/paddleport"]
EXPOSE 8000
STOPSIGNAL SIGTERM
HEALTHCHECK --interval=10s --timeout=3s --start-period=10s --retries=3 \
    CMD ["python", "-c", "import os, urllib.request; urllib.request.urlopen(f\"http://127.0.0.1:{os.environ['PADDLEPORT_PORT']}/v2/health/ready\", timeout=2)"]
CMD ["serve"]

FROM serve AS serve-cpu
COPY --from=build-serve-cpu /opt/paddleport /opt/paddleport
RUN ["paddleport", "doctor", "--target", "serve-cpu"]
USER 10001

FROM serve AS serve-gpu
# What the container runtime of NVIDIA goes by; CUDA, cuDNN and TensorRT come as Python packages.
ENV NVIDIA_VISIBLE_DEVICES=all \
    NVIDIA_DRIVER_CAPABILITIES=compute,utility
COPY --from=build-serve-gpu /opt/paddleport /opt/paddleport
RUN ["paddleport", "doctor", "--target", "serve-gpu"]
USER 10001

FROM runtime AS train
# libgomp: Paddle's; libgl1 and libglib: of the OpenCV that paddleslim imports.
# hadolint ignore=DL3008
RUN apt-get update \
    && apt-get install -y --no-install-recommends libgomp1 libgl1 libglib2.0-0 \
    && rm -rf /var/lib/apt/lists/* \
    && install -d -o 10001 -g nogroup -m 0755 /work
WORKDIR /work
VOLUME ["/work"]
CMD ["--help"]

FROM train AS train-cpu
COPY --from=build-train-cpu /opt/paddleport /opt/paddleport
RUN ["paddleport", "doctor", "--target", "train-cpu"]
USER 10001

FROM train AS train-gpu
ENV NVIDIA_VISIBLE_DEVICES=all \
    NVIDIA_DRIVER_CAPABILITIES=compute,utility
COPY --from=build-train-gpu /opt/paddleport /opt/paddleport
RUN ["paddleport", "doctor", "--target", "train-gpu"]
USER 10001

FROM runtime AS edge
# The C that `paddleport export` writes is compiled here for the host; cross compilers are the user's.
# hadolint ignore=DL3008
RUN apt-get update \
    && apt-get install -y --no-install-recommends gcc libc6-dev make \
    && rm -rf /var/lib/apt/lists/* \
    && install -d -o 10001 -g nogroup -m 0755 /work
WORKDIR /work
VOLUME ["/work"]
CMD ["--help"]
COPY --from=build-edge /opt/paddleport /opt/paddleport
RUN ["paddleport", "doctor", "--target", "edge"]
USER 10001
