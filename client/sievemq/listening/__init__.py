"""Listeners as functions: what both APIs share. `Listeners` of each is in :mod:`sievemq.blocking.listening` and
:mod:`sievemq.aio.listening`.

- :mod:`rules`: what an application writes beside its functions
- :mod:`plan`: a function's signature becomes the way to call it with a message
- :mod:`conversion`: plain data becomes a value of an annotated type
- :mod:`replies`: a returned value becomes a message
- :mod:`registry`: the functions that were registered
- :mod:`health`: whether they listen, over HTTP
"""

from sievemq.listening.rules import Header, Property, Retry

__all__ = ["Header", "Property", "Retry"]
