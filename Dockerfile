# One image for the server and for workers. On x86-64 it holds PyTorch's CUDA build, which also runs without a GPU.
FROM python:3.12-slim

ENV PYTHONUNBUFFERED=1 PYTHONDONTWRITEBYTECODE=1 PIP_NO_CACHE_DIR=1 PIP_DISABLE_PIP_VERSION_CHECK=1
RUN useradd --create-home --uid 1000 ampboard && install -d -o ampboard -g ampboard -m 0700 /data
WORKDIR /app

COPY requirements.lock ./
RUN pip install -r requirements.lock
COPY pyproject.toml README.md LICENSE ./
COPY amp_core amp_core
COPY server server
COPY worker worker
COPY web web
COPY migrations migrations
RUN pip install --no-deps .

USER ampboard
ENV AMPBOARD_DATA_DIR=/data
EXPOSE 8420
CMD ["ampboard", "server"]
