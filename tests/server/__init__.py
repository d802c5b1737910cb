"""Tests of ``perkey serve``: in this process over ASGI, and a real one over a socket."""
