# Serves the run folder that is mounted at /model. See docs/serving.md. It was not built where it was written.
FROM python:3.12-slim

WORKDIR /app
COPY pyproject.toml README.md LICENSE constraints.txt ./
COPY src ./src
# pip reads PIP_INDEX_URL, if the packages are to come from a mirror.
ARG PIP_INDEX_URL
RUN pip install --no-cache-dir -c constraints.txt torch \
    && pip install --no-cache-dir -c constraints.txt ".[serve]" \
    && useradd --create-home --uid 10001 wherefrom

USER wherefrom
ENV NUMBA_CACHE_DIR=/tmp/numba
EXPOSE 8000
HEALTHCHECK CMD ["python", "-c", "import urllib.request as r; r.urlopen('http://127.0.0.1:8000/health', timeout=3)"]
ENTRYPOINT ["wherefrom", "serve", "/model", "--host", "0.0.0.0", "--token-file", "/run/secrets/token"]
