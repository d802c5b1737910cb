"""Style sheet and scripts: kept for ever by their fingerprint, licences beside them."""

from __future__ import annotations

import re

import pytest

from perkey.server.pages import render, statics
from tests.server.client import Client
from tests.server.pages.html import Page


async def test_every_file_that_a_page_names_is_there_and_may_be_kept(client: Client) -> None:
    page = Page(await client.send("GET", "/ui"))
    named = [each["src"] for each in page.all("script")] + [
        each["href"] for each in page.all("link")
    ]
    assert len(named) == 7
    for address in named:
        answer = await client.send("GET", address)
        assert answer.status == 200
        assert answer.header("cache-control") == statics.FOREVER
        again = await client.send("GET", address, headers={"if-none-match": answer.etag})
        assert (again.status, again.body) == (304, b"")
    stale = await client.send("GET", named[0].partition("?")[0] + "?v=old")
    assert stale.header("cache-control") == "no-cache"


@pytest.mark.parametrize("name", ["..%2Frender.py", "%2Fetc%2Fpasswd", "x", "vendored", "", "."])
async def test_nothing_else_is_served(client: Client, name: str) -> None:
    assert (await client.send("GET", f"/ui/static/{name}")).status == 404


def test_vendored_files_have_their_licences_beside_them() -> None:
    folder = render.STATIC / "vendored"
    for path in folder.iterdir():
        licence = folder / f"{path.name.partition('.')[0]}.LICENSE.txt"
        assert "Permission" in licence.read_text("utf-8")


def test_our_scripts_write_no_markup_and_run_no_text() -> None:
    for path in render.STATIC.glob("*.js"):
        text = path.read_text("utf-8")
        assert (
            re.findall(
                r"innerHTML|outerHTML|insertAdjacent|eval\(|new Function|document\.write", text
            )
            == []
        )


def test_the_style_sheet_has_a_colour_for_every_tint() -> None:
    text = (render.STATIC / "perkey.css").read_text("utf-8")
    for number in range(render.TINTS):
        assert f".by-{number} {{ --h:" in text
    assert f".by-{render.TINTS}" not in text
    assert "url(" not in text
