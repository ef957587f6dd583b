# The server on NVIDIA GPUs, whose kernels are compiled when the image is made: docs/serving.md.
# docker build -f examples/docker/cuda.Dockerfile -t melforge-cuda .
FROM python:3.12-slim
LABEL org.opencontainers.image.title="Melforge" \
      org.opencontainers.image.description="Speech server on NVIDIA GPUs" \
      org.opencontainers.image.licenses="Apache-2.0 AND BSD-2-Clause"
ENV PATH=/opt/melforge/bin:$PATH MELFORGE_CACHE=/cache PYTHONDONTWRITEBYTECODE=1
# PyTorch's wheel brings CUDA's libraries; the driver is the host's, by the NVIDIA container toolkit.
RUN --mount=type=bind,target=/source,rw \
    python -m venv /opt/melforge && /opt/melforge/bin/pip install --no-cache-dir '/source[torch,serve]' triton==3.6.0
# Architectures as `melforge build --for` takes them; each takes minutes.
ARG GPUS=sm_80,sm_86,sm_89,sm_90
RUN install -d -o 1000 -g 1000 /cache && melforge build --backend cuda --for ${GPUS} && chown -R 1000:1000 /cache
USER 1000:1000
VOLUME /cache
EXPOSE 8000
HEALTHCHECK --start-period=10m --interval=20s --timeout=20s \
    CMD ["python", "-c", "import urllib.request; urllib.request.urlopen('http://127.0.0.1:8000/ready', timeout=15)"]
CMD ["melforge", "serve", "--host", "0.0.0.0", "--backend", "cuda", "--device", "cuda"]
