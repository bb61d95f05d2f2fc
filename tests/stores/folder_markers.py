"""Empty objects whose keys end with a slash, as consoles and Hadoop make them for folders. Our client makes none."""

from __future__ import annotations

import hashlib
import hmac
import urllib.request
from datetime import UTC, datetime
from urllib.parse import urlsplit

from fastloader.testing.seaweed import ACCESS, SECRET, S3Server

EMPTY = hashlib.sha256(b"").hexdigest()


def put_marker(s3: S3Server, bucket: str, key: str) -> None:
    """One of them; ``key`` ends with a slash."""
    host = urlsplit(s3.endpoint).netloc
    at = datetime.now(UTC).strftime("%Y%m%dT%H%M%SZ")
    scope = f"{at[:8]}/us-east-1/s3/aws4_request"
    names = "host;x-amz-content-sha256;x-amz-date"
    request = f"PUT\n/{bucket}/{key}\n\nhost:{host}\nx-amz-content-sha256:{EMPTY}\nx-amz-date:{at}\n\n{names}\n{EMPTY}"
    signed = f"AWS4-HMAC-SHA256\n{at}\n{scope}\n{hashlib.sha256(request.encode()).hexdigest()}"
    secret = f"AWS4{SECRET}".encode()
    for part in scope.split("/"):
        secret = hmac.digest(secret, part.encode(), "sha256")
    signature = hmac.new(secret, signed.encode(), "sha256").hexdigest()
    headers = {
        "x-amz-date": at, "x-amz-content-sha256": EMPTY,
        "Authorization": f"AWS4-HMAC-SHA256 Credential={ACCESS}/{scope}, SignedHeaders={names}, Signature={signature}",
    }  # fmt: skip
    address = f"{s3.endpoint}/{bucket}/{key}"
    urllib.request.urlopen(urllib.request.Request(address, data=b"", method="PUT", headers=headers)).close()
