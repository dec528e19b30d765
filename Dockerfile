# One image for the desk, and for the router and the workers of a plan: the command says which.
FROM python:3.13-slim AS build
WORKDIR /source
COPY pyproject.toml README.md LICENSE ./
COPY hetplan hetplan
COPY examples examples
RUN python -m venv /opt/hetplan
RUN /opt/hetplan/bin/pip install --no-cache-dir '.[desk]'

FROM python:3.13-slim
COPY --from=build /opt/hetplan /opt/hetplan
ENV PATH=/opt/hetplan/bin:$PATH
RUN useradd --create-home --uid 10001 hetplan
USER 10001
WORKDIR /home/hetplan
# What the first plan or query would wait for; kept for machines of the kind that built the image.
RUN hetplan doctor --compile
EXPOSE 8610
# A router's and a worker's command is in what `hetplan render --set router=hetplan` writes.
CMD ["hetplan", "desk", "--host", "0.0.0.0"]
