"""What a request can have wrong as HTTP, before any key is looked at."""

from __future__ import annotations

from perkey.errors import Busy, InvalidValue, UsageError


class BadRequest(UsageError):
    """The request cannot be read."""

    code = "bad-request"
    status = 400


class InvalidBody(InvalidValue):
    """The request's body is not what this path takes."""

    code = "invalid-body"


class NoSuchPath(UsageError):
    """This server has nothing at that path; a slash inside a key is written %2F."""

    code = "no-such-path"
    status = 404


class MethodNotAllowed(UsageError):
    """The path knows other methods; the Allow header lists them."""

    code = "method-not-allowed"
    status = 405


class UnsupportedMedia(UsageError):
    """The body's Content-Type is not one that this path takes."""

    code = "unsupported-media-type"
    status = 415


class HeadersTooLarge(UsageError):
    """The request has too many header lines, or they are too long."""

    code = "headers-too-large"
    status = 431


class WrongHost(UsageError):
    """The Host header names a host that this server does not serve."""

    code = "wrong-host"
    status = 421


class CrossOrigin(UsageError):
    """A page of another origin may not write here."""

    code = "cross-origin"
    status = 403


class SlowRequest(Busy):
    """The request did not arrive in the time allowed; nothing was done."""

    code = "request-timeout"
    status = 408


class Overloaded(Busy):
    """The server works on as many requests as it may; nothing was done."""

    code = "overloaded"
    status = 503
