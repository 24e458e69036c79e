# A policy server: a models folder in, actions over HTTP out.
#   docker build -t paddleport .
#   docker run --rm -p 127.0.0.1:8000:8000 -v "$PWD/models:/models:ro" paddleport [--precision int8] [--workers 2]
ARG BASE=python:3.11-slim-bookworm
FROM ${BASE}

ENV PYTHONUNBUFFERED=1

WORKDIR /src
COPY constraints.txt pyproject.toml README.md LICENSE ./
COPY paddleport ./paddleport
COPY serve ./serve
# Only the two packages that serve: no Paddle, no Gymnasium, no training code.
RUN pip install --no-cache-dir --constraint constraints.txt ".[serve]" \
    && rm -rf /src/* \
    && useradd --system --uid 10001 --no-create-home --shell /usr/sbin/nologin paddleport

WORKDIR /models
VOLUME /models
USER 10001
EXPOSE 8000

HEALTHCHECK --interval=10s --timeout=3s --start-period=10s --retries=3 \
    CMD ["python", "-c", "import urllib.request; urllib.request.urlopen('http://127.0.0.1:8000/v2/health/ready', timeout=2)"]

# Within the container every address is its own; who may reach the published port is decided where it is published.
ENTRYPOINT ["paddleport", "serve", "--models", "/models", "--host", "0.0.0.0", "--port", "8000", "--insecure"]
