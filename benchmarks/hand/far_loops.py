"""The hand-written loops over HTTP: S3 and DynamoDB with boto3, Azure with obstore, Google and a
perkey server with the standard library.  Each keeps a history, too, and sends nothing twice behind
its caller's back."""

from __future__ import annotations

import http.client
import json
from typing import Any
from urllib.parse import parse_qsl, unquote, urlsplit

from benchmarks.hand.loops import changed


def _parts(url: str) -> tuple[str, str, str, dict[str, str]]:
    """(user, password, host, options) of a store's URL."""
    parts = urlsplit(url)
    options = dict(parse_qsl(parts.query))
    return parts.username or "", parts.password or "", parts.hostname or "", options


def _client(service: str, url: str) -> tuple[Any, str]:
    import boto3
    from botocore.config import Config

    user, password, host, options = _parts(url)
    once = Config(retries={"total_max_attempts": 1}, s3={"addressing_style": "path"})
    client = boto3.client(
        service,
        endpoint_url=options["endpoint"],
        region_name=options["region"],
        aws_access_key_id=user,
        aws_secret_access_key=password,
        config=once,
    )
    return client, host


class S3:
    """Get, keep what was found under its version, and put on the condition of its tag."""

    def __init__(self, url: str, first: bytes) -> None:
        from botocore.exceptions import ClientError

        self.client, self.bucket = _client("s3", url)
        self.refused = ClientError
        try:
            self._put("hand/k", first, {"version": "1"}, IfNoneMatch="*")
        except ClientError:
            pass

    def _put(self, name: str, body: bytes, kept: dict[str, str], **condition: str) -> None:
        self.client.put_object(Bucket=self.bucket, Key=name, Body=body, Metadata=kept, **condition)

    def step(self) -> bool:
        found = self.client.get_object(Bucket=self.bucket, Key="hand/k")
        body, version = found["Body"].read(), int(found["Metadata"]["version"])
        self._put(f"hand/history/{version}", body, {"author": "me"})
        try:
            self._put("hand/k", changed(body), {"version": str(version + 1)}, IfMatch=found["ETag"])
        except self.refused as error:
            if error.response["ResponseMetadata"]["HTTPStatusCode"] not in (409, 412):
                raise
            return False
        return True

    def close(self) -> None:
        self.client.close()


class DynamoDB:
    """A consistent read, and one transaction that compares the version and keeps the new one."""

    TABLE = "hand"

    def __init__(self, url: str, first: bytes) -> None:
        self.client, _ = _client("dynamodb", url)
        self.conflict = self.client.exceptions.TransactionCanceledException
        try:
            self.client.create_table(
                TableName=self.TABLE,
                BillingMode="PAY_PER_REQUEST",
                AttributeDefinitions=[
                    {"AttributeName": "key", "AttributeType": "S"},
                    {"AttributeName": "version", "AttributeType": "N"},
                ],
                KeySchema=[
                    {"AttributeName": "key", "KeyType": "HASH"},
                    {"AttributeName": "version", "KeyType": "RANGE"},
                ],
            )
        except self.client.exceptions.ResourceInUseException:
            return
        self.client.put_item(TableName=self.TABLE, Item=self._item("0", 1, first))

    def _item(self, place: str, version: int, body: bytes) -> dict[str, Any]:
        return {
            "key": {"S": "k"},
            "version": {"N": place},
            "at": {"N": str(version)},
            "body": {"B": body},
            "author": {"S": "me"},
        }

    def step(self) -> bool:
        head = {"key": {"S": "k"}, "version": {"N": "0"}}
        item = self.client.get_item(TableName=self.TABLE, Key=head, ConsistentRead=True)["Item"]
        version, body = int(item["at"]["N"]), changed(item["body"]["B"])
        condition = {
            "ConditionExpression": "#at = :at",
            "ExpressionAttributeNames": {"#at": "at"},
            "ExpressionAttributeValues": {":at": item["at"]},
        }
        puts = [
            {"Item": self._item("0", version + 1, body), **condition},
            {"Item": self._item(str(version + 1), version + 1, body)},
        ]
        try:
            self.client.transact_write_items(
                TransactItems=[{"Put": {"TableName": self.TABLE, **put}} for put in puts]
            )
        except self.conflict:
            return False
        return True

    def close(self) -> None:
        self.client.close()


class Http:
    """``http.client`` on the documents of a perkey server: an entity tag, and ``If-Match``."""

    PATH = "/v1/documents/hand"

    def __init__(self, url: str, first: bytes) -> None:
        place = urlsplit(url)
        self.connection = http.client.HTTPConnection(place.hostname or "", place.port)
        self._ask("PUT", first, {"If-None-Match": "*"})

    def _ask(self, verb: str, body: bytes | None, headers: dict[str, str]) -> tuple[int, str, Any]:
        self.connection.request(
            verb, self.PATH, body, {"Content-Type": "application/json", **headers}
        )
        answer = self.connection.getresponse()
        return answer.status, answer.headers.get("ETag", ""), answer.read()

    def step(self) -> bool:
        _, tag, body = self._ask("GET", None, {})
        status, _, said = self._ask("PUT", changed(body), {"If-Match": tag})
        if status not in (200, 201, 204, 412):
            raise RuntimeError(f"{status}: {said[:200]!r}")
        return status != 412

    def close(self) -> None:
        self.connection.close()


class Gcs:
    """Google's JSON interface over ``http.client``: a generation, and ``ifGenerationMatch``.

    No library: google-cloud-storage sends again by itself, and what obstore sends is not served
    by the program that plays Google here.
    """

    def __init__(self, url: str, first: bytes) -> None:
        _, _, self.bucket, options = _parts(url)
        place = urlsplit(options["endpoint"])
        self.connection = http.client.HTTPConnection(place.hostname or "", place.port)
        self._put("hand/k", first, "0")

    def _put(self, name: str, body: bytes, generation: str | None = None) -> bool:
        about = json.dumps({"name": name}).encode()
        parts = [(b"application/json", about), (b"application/octet-stream", body)]
        sent = b"".join(b"--_\r\ncontent-type: %b\r\n\r\n%b\r\n" % part for part in parts)
        condition = "" if generation is None else f"&ifGenerationMatch={generation}"
        self.connection.request(
            "POST",
            f"/upload/storage/v1/b/{self.bucket}/o?uploadType=multipart{condition}",
            sent + b"--_--\r\n",
            {"content-type": "multipart/related; boundary=_"},
        )
        answer = self.connection.getresponse()
        said = answer.read()
        if answer.status not in (200, 412):
            raise RuntimeError(f"{answer.status}: {said[:200]!r}")
        return answer.status == 200

    def step(self) -> bool:
        self.connection.request("GET", f"/storage/v1/b/{self.bucket}/o/hand%2Fk?alt=media")
        answer = self.connection.getresponse()
        generation, body = answer.headers["x-goog-generation"], answer.read()
        self._put(f"hand/history/{generation}", body)
        return self._put("hand/k", changed(body), generation)

    def close(self) -> None:
        self.connection.close()


class Azure:
    """obstore on a blob, each request sent once: its ETag, and the old one kept beside it."""

    def __init__(self, url: str, first: bytes) -> None:
        import obstore
        from obstore.exceptions import AlreadyExistsError, PreconditionError
        from obstore.store import AzureStore

        account, key, container, options = _parts(url)
        self.obstore, self.refused = obstore, PreconditionError
        self.store = AzureStore(
            container,
            account_name=account,
            account_key=unquote(key),
            endpoint=f"{options['endpoint']}/{account}",
            client_options={"allow_http": True},
            retry_config={"max_retries": 0},
        )
        try:
            obstore.put(self.store, "hand/k", first, mode="create")
        except AlreadyExistsError:
            pass

    def step(self) -> bool:
        found = self.obstore.get(self.store, "hand/k")
        tag, body = str(found.meta["e_tag"]), bytes(found.bytes())
        kept = tag.strip('"')
        self.obstore.put(self.store, f"hand/history/{kept}", body)
        try:
            self.obstore.put(self.store, "hand/k", changed(body), mode={"e_tag": tag})
        except self.refused:
            return False
        return True

    def close(self) -> None:
        """Nothing to give back."""
