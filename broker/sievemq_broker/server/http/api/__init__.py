"""The management API: `/api/v1`, JSON over HTTP, described by an OpenAPI document made from the same declarations.

    declare     what an endpoint is: path, parameters, bodies, the right it requires
    requests    types of requests; answers  types of answers
    operation   from a request to a call and back: checks, parameters, the body
    openapi     the declarations as a document
    slices      long work in pieces, so that no other client waits

and one module per noun with its endpoints: broker, namespaces, destinations, messages, actions, consumers,
subscriptions, dead_letters, connections, selectors, events. ``series`` counts along in the background.

``series`` and ``hub`` begin with the port; the rest is imported on another thread, at the first request to the API.
"""

from __future__ import annotations

from typing import Final

__all__ = ["PREFIX"]

PREFIX: Final = "/api/v1"
"""Begins the path of everything in it."""
