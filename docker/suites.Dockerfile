# Other people's test suites (compat-tests/run), with all that they are built with, and a broker for those that start their own.
# docker/compose.compat.yaml runs it. The folder that is built is compat-tests:
#   docker build -f docker/suites.Dockerfile -t floodmark-suites compat-tests
ARG BROKER_IMAGE=floodmark
ARG GO_IMAGE=golang:1.26-bookworm
ARG RUST_IMAGE=rust:1.95-bookworm
ARG NODE_IMAGE=node:22-bookworm-slim

FROM ${BROKER_IMAGE} AS broker
FROM ${RUST_IMAGE} AS rust
FROM ${NODE_IMAGE} AS node

FROM ${GO_IMAGE}
RUN apt-get update \
 && DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends ca-certificates default-jdk-headless g++ kcat libssl-dev \
    make maven pkg-config procps python3-dev python3-venv rapidjson-dev zlib1g-dev \
 && rm -rf /var/lib/apt/lists/*
COPY --from=rust /usr/local /usr/local
COPY --from=node /usr/local /usr/local
COPY --from=broker /usr/local/bin/floodmark /usr/local/bin/floodmark
COPY . /floodmark/compat-tests
ENV RUSTUP_HOME=/usr/local/rustup CARGO_HOME=/usr/local/cargo TMPDIR=/logs
ENV PATH=/usr/local/cargo/bin:/usr/local/go/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin
WORKDIR /floodmark
ENTRYPOINT ["compat-tests/run"]
