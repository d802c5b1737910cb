"""Documents over HTTP: reads with tags, writes with conditions, and the look back."""

from __future__ import annotations

import gzip
import json

import pytest

from perkey import AsyncDocuments, AsyncStore, Limits, aopen
from perkey.server.app import application
from perkey.server.documents import JSON_PATCH, MERGE_PATCH, TRANSFORMS
from tests.server.client import Client, document


async def test_create_read_replace_delete(client: Client) -> None:
    made = await client.put("report", {"a": 1}, if_none_match="*", perkey_by="ann")
    assert (made.status, made.etag, made.header("location")) == (201, '"1"', document("report"))
    found = await client.get("report")
    assert (found.status, found.json, found.etag) == (200, {"a": 1}, '"1"')
    assert found.header("content-type") == "application/json"
    assert (found.header("perkey-by"), found.header("perkey-base")) == ("ann", "0")
    replaced = await client.put("report", {"a": 2}, if_match=found.etag)
    assert (replaced.status, replaced.etag) == (200, '"2"')
    assert replaced.json["version"] == 2
    assert (await client.get("report")).json == {"a": 2}
    erased = await client.delete("report", if_match='"2"')
    assert (erased.status, erased.json["version"], erased.json["deleted"]) == (200, 3, True)
    assert erased.header("etag") is None
    (await client.get("report")).problem(410, "gone")
    again = await client.put("report", {"a": 3}, if_none_match="*")
    assert (again.status, again.etag) == (201, '"4"'), "versions go on counting"


async def test_a_write_without_a_condition_is_428(client: Client) -> None:
    await client.create("k", 1)
    (await client.put("k", 2)).problem(428, "condition-required")
    (await client.put("k", 2, if_none_match='"7"')).problem(428, "condition-required")
    (await client.delete("k")).problem(428, "condition-required")
    (await client.patch("k", [], JSON_PATCH)).problem(428, "condition-required")
    assert (await client.get("k")).etag == '"1"'


async def test_a_stale_write_is_412_and_says_who_and_where(client: Client) -> None:
    base = {"title": "t", "links": [], "notes": {"a": 1, "b": 2}}
    await client.create("k", base)
    theirs = base | {"notes": {"a": 10, "b": 2}, "links": ["x"]}
    await client.put("k", theirs, if_match='"1"', perkey_by="bob")
    ours = base | {"notes": {"a": 11, "b": 2}, "title": "T"}
    found = (await client.put("k", ours, if_match='"1"')).problem(412, "conflict")
    assert (found["key"], found["expected"], found["found"], found["by"]) == ("k", 1, 2, "bob")
    assert found["overlaps"] == [{"path": "/notes/a", "by": "bob", "version": 2}]
    assert (found["paths"], found["mergeable"]) == (["/notes/a"], False)
    assert (await client.get("k")).json == theirs
    elsewhere = base | {"title": "T"}
    found = (await client.put("k", elsewhere, if_match='"1"')).problem(412, "conflict")
    assert (found["paths"], found["mergeable"]) == ([], True)


@pytest.mark.parametrize("match", ['W/"1"', '"7"', '"x"', 'W/"1", "2"'])
async def test_tags_that_never_match(client: Client, match: str) -> None:
    await client.create("k", 1)
    (await client.put("k", 2, if_match=match)).problem(412, "conflict")
    (await client.delete("k", if_match=match)).problem(412, "conflict")
    (await client.patch("k", 2, MERGE_PATCH, if_match=match)).problem(412, "conflict")
    assert (await client.get("k")).json == 1


async def test_lists_lines_and_stars(client: Client) -> None:
    await client.create("k", 1)
    assert (await client.put("k", 2, if_match='"7" ,"1"')).etag == '"2"'
    lines = [("if-match", '"7"'), ("if-match", '"2"')]
    assert (await client.send("PUT", document("k"), b"3", lines)).etag == '"3"'
    assert (await client.put("k", 4, if_match="*")).etag == '"4"'
    (await client.put("new", 1, if_match="*")).problem(412, "conflict")
    assert "Conflicted" not in client.app.services.store.statistics()["events"], (
        "none was overtaken"
    )
    (await client.put("k", 5, if_none_match="*")).problem(412, "conflict")
    assert client.app.services.store.statistics()["events"]["Conflicted"] == 1
    (await client.put("k", 5, if_match="4")).problem(400, "bad-request")
    (await client.put("k", 5, if_match='"4"', if_none_match='"4"')).problem(412, "conflict")
    assert (await client.put("k", 5, if_match='"4"', if_none_match='"3"')).etag == '"5"'


async def test_reads_with_conditions(client: Client) -> None:
    await client.create("k", 1)
    same = await client.get("k", if_none_match='W/"1"')
    assert (same.status, same.body, same.etag) == (304, b"", '"1"')
    assert same.header("content-type") is None
    assert (await client.get("k", if_none_match="*")).status == 304
    assert (await client.get("k", if_none_match='"2", "3"')).status == 200
    (await client.get("k", if_match='"2"')).problem(412, "conflict")
    (await client.get("k", if_match='"2"', if_none_match='"1"')).problem(412, "conflict")
    assert (await client.get("k", if_match='"1"', if_none_match='"1"')).status == 304
    (await client.get("none", if_none_match="*")).problem(404, "not-found")
    (await client.get("k", if_none_match="1")).problem(400, "bad-request")


async def test_head_is_get_without_its_body(client: Client) -> None:
    await client.create("k", [1, 2])
    got = await client.get("k")
    head = await client.send("HEAD", document("k"))
    assert (head.status, head.body, head.headers) == (200, b"", got.headers)


async def test_a_compressed_reply_does_not_break_the_tag(client: Client) -> None:
    value = {"text": "abc" * 1000}
    await client.create("k", value)
    packed = await client.get("k", accept_encoding="gzip, br")
    assert packed.header("content-encoding") == "gzip"
    assert json.loads(gzip.decompress(packed.body)) == value
    plain = await client.get("k", accept_encoding="br")
    assert plain.header("content-encoding") is None
    assert packed.etag != plain.etag, "a strong tag names the bytes"
    assert (await client.get("k", if_none_match=packed.etag)).status == 304
    assert "Accept-Encoding" in (packed.header("vary") or "")
    assert (await client.put("k", 2, if_match=packed.etag)).status == 200


@pytest.mark.parametrize(
    ("accepted", "packed"),
    [("gzip", True), ("*", True), ("gzip;q=0", False), ("gzip;q=0, *", False), ("", False),
     ("GZIP ; q=0.5", True), ("identity", False), ("x-gzip2", False), ("gzip;q=x", False)],
)  # fmt: skip
async def test_who_gets_it_compressed(client: Client, accepted: str, packed: bool) -> None:
    await client.create("k", "x" * 2000)
    found = await client.get("k", accept_encoding=accepted)
    assert (found.header("content-encoding") == "gzip") is packed


async def test_json_patch(client: Client) -> None:
    await client.create("k", {"a": [1], "b": 1})
    change = [{"op": "test", "path": "/b", "value": 1}, {"op": "add", "path": "/a/-", "value": 2}]
    done = await client.patch("k", change, JSON_PATCH, if_match='"1"')
    assert (done.status, done.etag) == (200, '"2"')
    assert (await client.get("k")).json == {"a": [1, 2], "b": 1}
    fails = [{"op": "test", "path": "/b", "value": 9}]
    (await client.patch("k", fails, JSON_PATCH, if_match="*")).problem(422, "invalid-patch")
    (await client.patch("k", {"op": 1}, JSON_PATCH, if_match="*")).problem(422, "invalid-patch")
    (await client.patch("none", change, JSON_PATCH, if_match="*")).problem(404, "not-found")


async def test_merge_patch_and_transforms(client: Client) -> None:
    await client.create("k", {"a": 1, "b": {"c": 1}})
    done = await client.patch("k", {"a": None, "b": {"d": 2}}, MERGE_PATCH, if_match="*")
    assert done.etag == '"2"'
    assert (await client.get("k")).json == {"b": {"c": 1, "d": 2}}
    count = [{"op": "increment", "path": "/n", "value": 3}]
    assert (await client.patch("k", count, TRANSFORMS, if_match='"2"')).etag == '"3"'
    assert (await client.get("k")).json["n"] == 3


async def test_the_content_type_decides(client: Client) -> None:
    await client.create("k", {})
    refused = await client.patch("k", {}, "application/json", if_match="*")
    assert JSON_PATCH in refused.problem(415, "unsupported-media-type")["accepted"]
    assert MERGE_PATCH in (refused.header("accept") or "")
    put = {"if-match": "*", "content-type": "text/plain"}
    (await client.send("PUT", document("k"), b"1", put)).problem(415, "unsupported-media-type")
    latin = put | {"content-type": "application/json; charset=latin-1"}
    (await client.send("PUT", document("k"), b"1", latin)).problem(415, "unsupported-media-type")
    utf8 = put | {"content-type": 'Application/JSON; charset="UTF-8"'}
    assert (await client.send("PUT", document("k"), b"1", utf8)).status == 200


@pytest.mark.parametrize("body", [b"", b"{", b"nan", b'"\xff"', b"1 2", b"[" * 2000, b"1e999"])
async def test_what_is_no_json(client: Client, body: bytes) -> None:
    answer = await client.send("PUT", document("k"), body, {"if-none-match": "*"})
    answer.problem(422, "invalid-value")
    (await client.get("k")).problem(404, "not-found")


async def test_merge_by_preference(client: Client) -> None:
    await client.create("k", {"a": 1, "b": 1})
    await client.put("k", {"a": 2, "b": 1}, if_match='"1"', perkey_by="bob")
    merged = await client.put("k", {"a": 1, "b": 2}, if_match='"1"', prefer="merge")
    assert (merged.status, merged.header("preference-applied")) == (200, "merge")
    assert (merged.json["version"], merged.json["merged"]) == (3, True)
    assert merged.header("etag") is None, "the caller does not know what was written"
    assert (await client.get("k")).json == {"a": 2, "b": 2}
    refused = await client.put("k", {"a": 9, "b": 1}, if_match='"1"', prefer="merge")
    found = refused.problem(412, "conflict")
    assert found["overlaps"] == [{"path": "/a", "by": "bob", "version": 2}]
    assert found["authors"] == ["bob"]
    fresh = await client.put("k", {"a": 3, "b": 2}, if_match='"3"', prefer="merge")
    assert (fresh.etag, fresh.header("preference-applied")) == ('"4"', "merge")
    for match in ("*", '"1", "2"', 'W/"1"'):
        (await client.put("k", {}, if_match=match, prefer="merge")).problem(400, "bad-request")


async def test_the_representation_can_be_asked_for(client: Client) -> None:
    await client.create("k", {"a": 1, "b": 1})
    await client.put("k", {"a": 2, "b": 1}, if_match='"1"')
    prefer = 'merge;x=1, return="representation"'
    merged = await client.put("k", {"a": 1, "b": 2}, if_match='"1"', prefer=prefer)
    assert (merged.json, merged.etag) == ({"a": 2, "b": 2}, '"3"')
    assert merged.header("preference-applied") == "merge, return=representation"
    made = await client.put("n", [1], if_none_match="*", prefer="return=representation")
    assert (made.status, made.json, made.header("location")) == (201, [1], document("n"))


async def test_history_versions_diff_and_blame(client: Client) -> None:
    await client.create("k", {"a": 1})
    await client.put("k", {"a": 1, "b": 2}, if_match='"1"', perkey_by="bob")
    await client.put("k", {"a": 3, "b": 2}, if_match="*", perkey_by="eve")
    past = (await client.send("GET", f"{document('k')}/history")).json
    assert [(v["version"], v["by"], v["etag"]) for v in past["versions"]] == [
        (1, "", '"1"'), (2, "bob", '"2"'), (3, "eve", '"3"')
    ]  # fmt: skip
    assert "next" not in past
    assert "value" not in past["versions"][0]
    old = await client.send("GET", f"{document('k')}/versions/1")
    assert (old.json, old.etag) == ({"a": 1}, '"1"')
    (await client.send("GET", f"{document('k')}/versions/9")).problem(404, "not-found")
    (await client.send("GET", f"{document('k')}/versions/x")).problem(400, "bad-request")
    changed = (await client.send("GET", f"{document('k')}/diff?from=1&to=3")).json["changes"]
    assert changed == [
        {"op": "replace", "path": "/a", "old": 1, "new": 3},
        {"op": "add", "path": "/b", "new": 2},
    ]
    (await client.send("GET", f"{document('k')}/diff?from=1")).problem(400, "bad-request")
    origins = (await client.send("GET", f"{document('k')}/blame")).json["origins"]
    assert origins == {
        "/a": {"version": 3, "by": "eve", "known": True},
        "/b": {"version": 2, "by": "bob", "known": True},
    }
    part = (await client.send("GET", f"{document('k')}/blame?path=%2Fb")).json["origins"]
    assert list(part) == ["/b"]


async def test_dropped_versions_are_gone() -> None:
    async with await aopen("memory://", limits=Limits(keep_versions=2)) as store:
        client = Client(application(store))
        await client.create("k", 0)
        for n in range(1, 5):
            await client.put("k", n, if_match="*")
        (await client.send("GET", f"{document('k')}/versions/1")).problem(410, "gone")
        found = (await client.put("k", 9, if_match='"1"')).problem(412, "conflict")
        assert (found["found"], "overlaps" in found) == (5, False)


async def test_history_of_a_deleted_document(client: Client) -> None:
    await client.create("k", 1)
    await client.delete("k", if_match="*")
    past = (await client.send("GET", f"{document('k')}/history?values=true")).json["versions"]
    assert [each.get("value") for each in past] == [1, None]
    assert past[1]["deleted"]
    (await client.send("GET", f"{document('k')}/versions/2")).problem(410, "gone")
    (await client.delete("k", if_match="*")).problem(410, "gone")


async def test_pages_of_documents(client: Client) -> None:
    keys = [f"a/{n:03}" for n in range(7)]
    for key in [*keys, "b"]:
        await client.create(key, {"key": key})
    found, target = [], "/v1/documents?prefix=a%2F&limit=3&values=true"
    pages = 0
    while target:
        page = await client.send("GET", target)
        found += page.json["documents"]
        link = page.header("link") or ""
        target = f"/v1/documents{link[1:].partition('>')[0]}" if link else ""
        assert (link != "") == ("next" in page.json)
        pages += 1
    assert [each["key"] for each in found] == keys
    assert [each["value"]["key"] for each in found] == keys
    assert pages == 3
    for query in ("limit=0", "limit=1001", "limit=x", "values=yes", "prefx=a", "limit=1&limit=2"):
        (await client.send("GET", f"/v1/documents?{query}")).problem(400, "bad-request")


async def test_pages_of_long_values_end_early(client: Client, store: AsyncStore) -> None:
    docs = AsyncDocuments(store)
    for n in range(200):
        await docs.put(f"k{n:03}", "x" * 200_000, create=True)
    page = (await client.send("GET", "/v1/documents?limit=1000")).json
    assert len(page["documents"]) == 100, "two chunks of fifty are beyond 16 MiB"
    assert page["next"] == "k099"


async def test_pages_of_history(client: Client) -> None:
    await client.create("k", 0)
    for n in range(1, 120):
        await client.put("k", n, if_match="*")
    first = (await client.send("GET", f"{document('k')}/history?limit=70")).json
    assert [v["version"] for v in first["versions"]] == list(range(1, 71))
    rest = (await client.send("GET", f"{document('k')}/history?after={first['next']}")).json
    assert [v["version"] for v in rest["versions"]] == list(range(71, 121))


KEYS = [
    "a/b", "/", "//", "..", "../..", ".", "a/../b", "%2F", "%", "a b", "a+b", "?x=1", "#f", "é/ü",
    "\u202e", "\x00", "\n\r", "history", "k/history", "😀", "a" * 512, "'; drop table", "\\..\\",
    "{key}", "*", ";v=1", "a&b=c",
]  # fmt: skip


@pytest.mark.parametrize("key", KEYS)
async def test_a_key_is_any_text_and_never_a_path(client: Client, key: str) -> None:
    await client.create(key, {"key": key})
    assert (await client.get(key)).json == {"key": key}
    listed = (await client.send("GET", "/v1/documents")).json["documents"]
    assert [each["key"] for each in listed] == [key]
    past = (await client.send("GET", f"{document(key)}/history")).json["versions"]
    assert [each["key"] for each in past] == [key]


@pytest.mark.parametrize(
    ("path", "status", "code"),
    [
        ("/v1/documents/", 400, "invalid-key"),
        ("/v1/documents/a/b", 404, "no-such-path"),
        ("/v1/documents//a", 404, "no-such-path"),
        ("/v1/documents/%", 400, "bad-request"),
        ("/v1/documents/%zz", 400, "bad-request"),
        ("/v1/documents/%ff", 400, "bad-request"),
        ("/v1/documents/%ED%A0%80", 400, "bad-request"),
        ("/v1/documents/" + "a" * 513, 400, "invalid-key"),
        ("/v1/../healthz", 404, "no-such-path"),
        ("/v1/documents/..%2F..%2Fhealthz", 404, "not-found"),
        ("//healthz", 404, "no-such-path"),
        ("/v1", 404, "no-such-path"),
    ],
)
async def test_paths_that_are_none(client: Client, path: str, status: int, code: str) -> None:
    (await client.send("GET", path)).problem(status, code)


async def test_the_author_is_any_text(client: Client) -> None:
    by = "Zoë/шаг 3"
    made = await client.put("k", 1, if_none_match="*", perkey_by="Zo%C3%AB%2F%D1%88%D0%B0%D0%B3 3")
    assert made.json["by"] == by
    shown = (await client.get("k")).header("perkey-by")
    assert shown == "Zo%C3%AB/%D1%88%D0%B0%D0%B3 3"
    (await client.put("k", 1, if_match="*", perkey_by="%")).problem(400, "bad-request")
    (await client.put("k", 1, if_match="*", perkey_by="x" * 201)).problem(400, "usage")
