from __future__ import annotations

import pytest

from cdc.lake.storage_errors import storage_error

_S3 = "com.amazonaws.services.s3.model.AmazonS3Exception: "
_GOOGLE = "com.google.api.client.googleapis.json.GoogleJsonResponseException: "
_IDS = "; Request ID: 1F9; S3 Extended Request ID: 9Gj=; Proxy: null), S3 Extended Request ID: 9Gj="


@pytest.mark.parametrize(
    ("reason", "remedy"),
    [
        ("java.lang.ClassNotFoundException: Class a.S3AFileSystem not found", "hadoop-aws"),
        (f"{_S3}no bucket (Status Code: 404; Error Code: NoSuchBucket{_IDS}", "Create the bucket"),
        (f"{_S3}(Status Code: 403; Error Code: InvalidAccessKeyId{_IDS}", "does not accept"),
        (f"{_S3}(Status Code: 403; Error Code: SignatureDoesNotMatch{_IDS}", "does not accept"),
        (f"{_S3}(Status Code: 403; Error Code: AccessDenied{_IDS}", "Allow s3:ListBucket"),
        (f"{_S3}Forbidden (Status Code: 403; Error Code: 403 Forbidden{_IDS}", "Allow s3:"),
        ("com.amazonaws.SdkClientException: Unable to load AWS credentials from env", "Set lake."),
        (f"{_S3}Slow Down (Status Code: 503; Error Code: SlowDown{_IDS}", "is busy"),
        (f"{_S3}(Status Code: 301; Error Code: PermanentRedirect{_IDS}", "another region"),
        ("java.lang.ClassNotFoundException: Class a.GoogleHadoopFileSystem not found", "connector"),
        ("java.io.IOException: Error getting access token from metadata server", "json.keyfile"),
        (f"{_GOOGLE}401 Unauthorized", "json.keyfile"),
        (f"{_GOOGLE}403 Forbidden", "roles/storage.objectAdmin"),
        (f"{_GOOGLE}404 Not Found", "Create the bucket"),
        (f"{_GOOGLE}429 Too Many Requests", "is busy"),
        ("javax.net.ssl.SSLException: Unsupported or unrecognized SSL message", "speaks TLS"),
        (
            "sun.security.provider.certpath.SunCertPathBuilderException: unable to find valid"
            " certification path to requested target",
            "Java's trust store",
        ),
        ("java.security.cert.CertificateExpiredException: NotAfter", "Java's trust store"),
        ("java.net.ConnectException: Connection refused", "does not answer"),
        ("java.net.UnknownHostException: nowhere.invalid", "does not answer"),
        ("java.io.IOException: disk", "Check the lake's URL"),
    ],
)
def test_each_reason_has_the_remedy_that_fits(reason: str, remedy: str) -> None:
    error = storage_error("s3a://lake cannot be accessed", reason, path="s3a://lake")
    assert remedy in (error.remedy or "")
    assert error.message.startswith("s3a://lake cannot be accessed: ")
    assert "Extended" not in error.message
    assert error.message.count("9Gj") == 0
