"""The management port: health, metrics, a read-only JSON API and a console page, on Starlette and uvicorn.

Imported only when HTTP is served, after the wire port is ready.
"""
