"""The table itself: found or made, recognised, and what to know about it."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

from perkey.clock import Clock
from perkey.errors import SchemaMismatch, StoreError, Timeout
from perkey.store.backends.dynamodb_client import Client, Item, Refusal, number
from perkey.store.limits import Limits

FORMAT = 1
POLL_S = 0.25
MARKER: Item = {"p": {"B": b"perkey"}, "s": {"B": b"format"}}
KEYS = [{"AttributeName": "p", "KeyType": "HASH"}, {"AttributeName": "s", "KeyType": "RANGE"}]
TYPES = [{"AttributeName": name, "AttributeType": "B"} for name in ("p", "s")]


def ready(client: Client, create: bool, clock: Clock, limits: Limits) -> None:
    """Wait until the table can be used; ``create`` makes one where there is none."""
    deadline = clock.monotonic() + max(60.0, limits.timeout_s)
    while True:
        told = _described(client, create)
        if told.get("TableStatus") in ("ACTIVE", "UPDATING"):
            break
        if clock.monotonic() >= deadline:
            raise Timeout(f"the table {client.place} is still {told.get('TableStatus', 'missing')}")
        clock.sleep(POLL_S)
    types = {each["AttributeName"]: each["AttributeType"] for each in told["AttributeDefinitions"]}
    keys = [(each["AttributeName"], each["KeyType"]) for each in told["KeySchema"]]
    if keys != [("p", "HASH"), ("s", "RANGE")] or (types.get("p"), types.get("s")) != ("B", "B"):
        raise SchemaMismatch(
            f"the table {client.place} is no perkey store: expected a binary partition key p and a "
            "binary sort key s; nothing was written, name another table"
        )
    _check_format(client)


def _described(client: Client, create: bool) -> dict[str, Any]:
    """The table's description; empty where it is not there yet."""
    try:
        told: dict[str, Any] = client.ask("DescribeTable", {})["Table"]
        return told
    except Refusal as refusal:
        if refusal.code != "ResourceNotFoundException" or not create:
            raise client.nothing_done(refusal) from refusal
    try:
        client.ask(
            "CreateTable",
            {
                "KeySchema": KEYS,
                "AttributeDefinitions": TYPES,
                "BillingMode": "PAY_PER_REQUEST",
            },
            again=False,
        )
    except Refusal as refusal:
        if refusal.code != "ResourceInUseException":  # somebody else makes it
            raise client.nothing_done(refusal) from refusal
    return {}


def _check_format(client: Client) -> None:
    asked: Item = {"Key": MARKER, "ConsistentRead": True}
    try:
        found = client.ask("GetItem", asked).get("Item")
        if found is None:
            item = {**MARKER, "v": {"N": str(FORMAT)}}
            with suppress(Refusal):
                condition = "attribute_not_exists(p)"
                client.ask("PutItem", {"Item": item, "ConditionExpression": condition}, again=False)
            found = client.ask("GetItem", asked).get("Item")
    except Refusal as refusal:
        raise client.nothing_done(refusal) from refusal
    if found is None or number(found, "v") != FORMAT:
        raise SchemaMismatch(
            f"the store in {client.place} has format {found and number(found, 'v')}, this perkey "
            f"knows {FORMAT}; use a newer one"
        )


def facts(client: Client) -> dict[str, str]:
    """What a person may want to know."""
    told = _described(client, create=False)
    billing = told.get("BillingModeSummary", {}).get("BillingMode", "PROVISIONED")
    return {
        "address": client.place,
        "region": client.region,
        "status": str(told.get("TableStatus")),
        "billing": str(billing),
        "items": f"about {told.get('ItemCount', 0)}",
        "schema": str(FORMAT),
        "clock": f"this client's, {abs(client.time.off_ms)} ms off what the service's allows",
    }


def concerns(client: Client) -> list[str]:
    """Settings of the table that lose acknowledged writes."""
    found: list[str] = []
    told = _described(client, create=False)
    if told.get("Replicas"):
        found.append(
            "the table is written in several regions, and conditions hold in one: let all "
            "processes use the same region"
        )
    with suppress(StoreError, Refusal):
        time = client.ask("DescribeTimeToLive", {}).get("TimeToLiveDescription", {})
        if time.get("TimeToLiveStatus") in ("ENABLED", "ENABLING"):
            found.append(
                f"the table removes items by their attribute {time.get('AttributeName')!r} (TTL); "
                "switch that off"
            )
    return found
