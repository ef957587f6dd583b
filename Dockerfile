# The server with ONNX Runtime on a CPU: docs/serving.md.
FROM python:3.12-slim
WORKDIR /melforge
COPY . .
RUN pip install --no-cache-dir '.[serve]' && rm -rf /melforge/* && useradd --system --create-home melforge
USER melforge
EXPOSE 8000
HEALTHCHECK --start-period=30s --timeout=20s \
    CMD ["python", "-c", "import urllib.request; urllib.request.urlopen('http://127.0.0.1:8000/ready', timeout=15)"]
# Without keys it does not start: docker run -e MELFORGE_API_KEYS=secret -p 8000:8000 melforge
CMD ["melforge", "serve", "--host", "0.0.0.0"]
