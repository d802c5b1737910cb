"""All scenarios, and how their variants are named on the command line."""

from __future__ import annotations

from collections.abc import Sequence

from perkey.errors import UsageError
from perkey.lab import backwards_view, double_move, half_open, lost_update
from perkey.lab.scenario import Scenario, Variant

SCENARIOS: dict[str, Scenario] = {
    module.SCENARIO.name: module.SCENARIO
    for module in (lost_update, double_move, backwards_view, half_open)
}
"""By name, in the order in which people meet them."""

Chosen = tuple[str, str]
"""A scenario's name and one of its variants'."""


def find(chosen: Chosen) -> tuple[Scenario, Variant]:
    """The scenario and the variant of these names."""
    scenario = SCENARIOS[chosen[0]]
    return scenario, scenario.variant(chosen[1])


def choose(names: Sequence[str]) -> list[Chosen]:
    """What ``names`` name, each once, in the catalogue's order; everything when there are none.

    A name is a scenario (``double-move``) or one variant of it (``double-move/delete``).
    ``UsageError`` for a name that names nothing.
    """
    everything = [
        (scenario.name, variant.name)
        for scenario in SCENARIOS.values()
        for variant in scenario.variants
    ]
    wanted: set[Chosen] = set()
    for name in names:
        scenario, _, variant = name.partition("/")
        found = [
            each
            for each in everything
            if each[0] == scenario and ("/" not in name or each[1] == variant)
        ]
        if not found:
            raise UsageError(f"expected a failure of the lab, found {name!r}; {_known(scenario)}")
        wanted.update(found)
    return [each for each in everything if not names or each in wanted]


def _known(scenario: str) -> str:
    if scenario in SCENARIOS:
        variants = ", ".join(each.name for each in SCENARIOS[scenario].variants)
        return f"the variants of {scenario} are {variants}"
    return f"there are {', '.join(SCENARIOS)}"
