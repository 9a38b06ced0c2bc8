"""Pages from the Jinja templates that lie beside a package's code; the node has no template engine."""

from __future__ import annotations

from collections.abc import Callable

import jinja2


def templates(package: str, *, autoescape: bool, **filters: Callable[..., str]) -> jinja2.Environment:
    """The templates of a package. A name that a template uses and is not given raises jinja2.UndefinedError."""
    pages = jinja2.Environment(
        loader=jinja2.PackageLoader(package),
        autoescape=autoescape,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    pages.filters.update(filters)
    return pages
