# The server with ONNX Runtime on a CPU, amd64 and arm64: docs/serving.md.
FROM python:3.12-slim AS build
RUN --mount=type=bind,target=/source,rw \
    python -m venv /opt/melforge && /opt/melforge/bin/pip install --no-cache-dir '/source[serve]'

FROM python:3.12-slim
LABEL org.opencontainers.image.title="Melforge" \
      org.opencontainers.image.description="Speech server on a CPU" \
      org.opencontainers.image.licenses="Apache-2.0 AND BSD-2-Clause"
RUN install -d -o 1000 -g 1000 /cache
COPY --from=build /opt/melforge /opt/melforge
ENV PATH=/opt/melforge/bin:$PATH MELFORGE_CACHE=/cache PYTHONDONTWRITEBYTECODE=1
USER 1000:1000
VOLUME /cache
EXPOSE 8000
HEALTHCHECK --start-period=60s --interval=20s --timeout=20s \
    CMD ["python", "-c", "import urllib.request; urllib.request.urlopen('http://127.0.0.1:8000/ready', timeout=15)"]
# Without keys it does not start: docker run -e MELFORGE_API_KEYS=secret -p 8000:8000 melforge
CMD ["melforge", "serve", "--host", "0.0.0.0"]
