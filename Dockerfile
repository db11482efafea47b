# Facet's programs in one image; docker-compose.yml says which container runs which.
FROM python:3.11-slim

RUN pip install --no-cache-dir uv==0.13.9

ENV PYTHONUNBUFFERED=1 \
    PYTHONDONTWRITEBYTECODE=1 \
    UV_COMPILE_BYTECODE=1 \
    UV_LINK_MODE=copy \
    UV_PYTHON_DOWNLOADS=never \
    PATH=/facet/.venv/bin:$PATH

RUN groupadd --gid 10001 facet \
    && useradd --uid 10001 --gid facet --create-home --home-dir /home/facet facet \
    && install --directory --owner facet --group facet --mode 0700 /data

WORKDIR /facet
COPY pyproject.toml uv.lock ./
RUN uv sync --frozen --no-dev

COPY . .
# The pages' files carry their content's hash; a key must be there and is not kept.
RUN FACET_PRODUCTION=1 FACET_SECRET_KEY=only-while-the-image-is-built-0123456789 DATA_DIR=/tmp/build \
    python manage.py collectstatic --noinput

USER facet
ENV DATA_DIR=/data
VOLUME /data
EXPOSE 8000
