# A broker in an image: docker build -t odradek . && docker run -p 127.0.0.1:9092:9092 -v odradek:/data odradek
# How clients beside it find it: docs/OPERATIONS.md, "Run in a container".
# Not yet built by Docker: its steps were run one by one on Debian, and scripts/smoke with what came out.
ARG PYTHON=3.13

FROM python:${PYTHON}-slim AS build
RUN apt-get update && apt-get install -y --no-install-recommends gcc libc6-dev
WORKDIR /source
COPY . .
RUN pip wheel --no-cache-dir --wheel-dir /wheels '.[metrics,regex]'

FROM python:${PYTHON}-slim
RUN --mount=type=bind,from=build,source=/wheels,target=/wheels \
    pip install --no-cache-dir --no-index /wheels/*.whl
RUN useradd --uid 9092 --no-create-home odradek && install -d -o odradek -g odradek /data
USER odradek
WORKDIR /data
VOLUME /data
EXPOSE 9092
ENTRYPOINT ["odradek", "serve"]
# Arguments replace all of these. In a container, --insecure accepts connections from the container network only.
CMD ["--override=log.dirs=/data/logs", "--override=listeners=PLAINTEXT://0.0.0.0:9092", \
     "--override=advertised.listeners=PLAINTEXT://localhost:9092", "--insecure"]
