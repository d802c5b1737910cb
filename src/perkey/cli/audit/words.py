"""Word lists: what is too common to be a term, and words that two sides of an ocean spell apart."""

from __future__ import annotations

_COMMON = """about above after again against also although always among another around because been
    before being below between both cannot could does doing done down during each either else
    even ever every first from further given gives goes going have having here hers herself
    himself into itself just know last less like made make makes many might more most much must
    myself need needs never next none nothing once only other others ours ourselves over same
    shall should since some something still such take takes than that their theirs them
    themselves then there therefore these they thing things this those though through thus
    together under until upon used uses using very want well were what when where whether which
    while whole whom whose will with within without would your yours yourself yourselves"""
STOP_WORDS = frozenset(_COMMON.split())

_ISE = """analyse authorise behaviour categorise characterise customise emphasise finalise
    generalise initialise maximise minimise normalise optimise organise prioritise realise
    recognise serialise specialise standardise summarise synchronise utilise visualise"""
_OTHERS = {
    "armour": "armor",
    "artefact": "artifact",
    "artefacts": "artifacts",
    "cancelled": "canceled",
    "cancelling": "canceling",
    "catalogue": "catalog",
    "centre": "center",
    "centred": "centered",
    "colour": "color",
    "coloured": "colored",
    "colours": "colors",
    "defence": "defense",
    "favour": "favor",
    "favourite": "favorite",
    "fibre": "fiber",
    "grey": "gray",
    "honour": "honor",
    "humour": "humor",
    "labelled": "labeled",
    "labelling": "labeling",
    "labour": "labor",
    "modelled": "modeled",
    "modelling": "modeling",
    "neighbour": "neighbor",
    "neighbours": "neighbors",
    "offence": "offense",
    "signalled": "signaled",
    "signalling": "signaling",
    "theatre": "theater",
    "travelled": "traveled",
    "unlabelled": "unlabeled",
}


def _american(word: str) -> str:
    if word.endswith("our"):
        return word[:-3] + "or"
    return word[:-2] + "ze" if word.endswith("se") else word


def _family(word: str) -> dict[str, str]:
    """A verb in -ise with its endings, or the word alone."""
    us = _american(word)
    if not word.endswith("se"):
        return {word: us, f"{word}s": f"{us}s"}
    endings = ("e", "es", "ed", "er", "ing")
    every = {word[:-1] + end: us[:-1] + end for end in endings}
    every.pop("analyses", None)  # the plural of a noun that both spell alike
    return every


UK_TO_US: dict[str, str] = {
    uk: us for word in _ISE.split() for uk, us in _family(word).items()
} | _OTHERS
"""UK spelling to US spelling; both sides are lower case and no word is on both."""
