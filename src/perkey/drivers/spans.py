"""OpenTelemetry spans for transactions: one each, from the moment it is asked for to its outcome.

The span's parent is the caller's current span, also where another thread made the commit.  A key
is never in one unless it was asked for, nor an error's message, which may quote a key.
"""

from __future__ import annotations

from typing import Any, TypeVar

from perkey.errors import MissingExtra, PerkeyError, Refused
from perkey.flows import steps
from perkey.observe import events
from perkey.store.transaction import Outcome

T = TypeVar("T")

SCOPE = "perkey"
"""What the instrumentation is called in spans."""
NAME = "perkey.transaction"


def api() -> Any:
    """``opentelemetry.trace``; ``MissingExtra`` where it is not installed."""
    try:
        from opentelemetry import trace
    except ModuleNotFoundError as error:
        raise MissingExtra(
            "spans need the package 'opentelemetry-api'; install it with: "
            "pip install 'perkey[otel]'"
        ) from error
    return trace


class Spans:
    """Watches the flows of one store; ``provider``: None takes the program's own."""

    def __init__(self, backend: str, provider: Any = None, keys: bool = False) -> None:
        self._trace = api()
        self._tracer = self._trace.get_tracer(SCOPE, tracer_provider=provider)
        self._backend = backend
        self._keys = keys

    def flow(self, inner: steps.Flow[T]) -> steps.Flow[T]:
        """The same flow, with a span around each of its transactions."""
        return steps.through(inner, self._performed)

    def _performed(self, step: steps.Step) -> steps.Flow[Any]:
        if type(step) is not steps.Transact:
            return (yield step)
        span = self._begun(step)
        try:
            outcome = yield step
            self._succeeded(span, outcome)
        except BaseException as error:
            self._failed(span, error)
            raise
        finally:
            span.end()
        return outcome

    def _begun(self, step: steps.Transact) -> Any:
        facts: dict[str, Any] = {
            "perkey.store": self._backend,
            "perkey.keys.count": len(step.keys),
        }
        if self._keys:
            facts["perkey.keys"] = [key[2:] for key in step.keys]
        return self._tracer.start_span(NAME, attributes=facts)

    def _succeeded(self, span: Any, outcome: Outcome) -> None:
        if span.is_recording():
            span.set_attribute("perkey.writes", len(outcome.writes))
            span.set_attribute("perkey.attempts", outcome.attempts)
            span.set_attribute("perkey.replayed", outcome.replayed)

    def _failed(self, span: Any, error: BaseException) -> None:
        told = error.code if isinstance(error, PerkeyError) else type(error).__qualname__
        span.set_attribute("error.type", told)
        if not isinstance(error, Refused):  # what the state of a key forbids is an answer
            span.set_status(self._trace.StatusCode.ERROR)

    def hook(self, event: events.Event) -> None:
        """What else happens is told to the caller's current span, by its kind."""
        if not isinstance(event, events.Committed):
            name = getattr(event, "label", type(event).__name__)
            self._trace.get_current_span().add_event(f"perkey.{name}")
