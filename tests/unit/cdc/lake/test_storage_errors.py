from __future__ import annotations

import pytest

from cdc.lake.storage_errors import storage_error

_S3 = "com.amazonaws.services.s3.model.AmazonS3Exception: "
_GOOGLE = "com.google.api.client.googleapis.json.GoogleJsonResponseException: "
_OF_TOKENS = "org.apache.hadoop.security.AccessControlException"
_REMOTE = "org.apache.hadoop.ipc.RemoteException"
_DENIED = f"{_REMOTE}({_OF_TOKENS})"
_SAFE = f"{_REMOTE}(org.apache.hadoop.hdfs.server.namenode.SafeModeException)"
_STANDBY = f"{_REMOTE}(org.apache.hadoop.ipc.StandbyException)"
_ABFS = "https://lake.dfs.core.windows.net/cdc/lake"
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
        (
            f'{_DENIED}: Permission denied: user=cdc, access=WRITE, inode="/":hdfs:supergroup:'
            "drwxr-xr-x",
            "hdfs dfs -chown",
        ),
        (
            f"{_SAFE}: Cannot create file/lake/.tributary-1. Name node is in safe mode.",
            "hdfs dfsadmin -safemode leave",
        ),
        (
            f"{_STANDBY}: Operation category READ is not supported in state standby. Visit https",
            "nameservice",
        ),
        (
            f"{_OF_TOKENS}: SIMPLE authentication is not enabled.  Available:[TOKEN, KERBEROS]",
            "spark.kerberos.keytab",
        ),
        (f"{_OF_TOKENS}: Client cannot authenticate via:[TOKEN, KERBEROS]", "ticket"),
        (
            "java.lang.ClassNotFoundException: Class"
            " org.apache.hadoop.fs.azurebfs.SecureAzureBlobFileSystem not found",
            "hadoop-azure",
        ),
        (
            'org.apache.hadoop.fs.UnsupportedFileSystemException: No FileSystem for scheme "oss"',
            "spark.jars in spark.conf",
        ),
        (
            "Failure to initialize configuration for lake.dfs.core.windows.net"
            ' key ="null": Invalid configuration value detected for fs.azure.account.key',
            "fs.azure.account.key.ACCOUNT",
        ),
        ("Configuration property lake.dfs.core.windows.net not found.", "fs.azure.account.key."),
        (
            "HTTP Error 401; url='https://login.microsoftonline.com/t/oauth2/token' AADToken: HTTP"
            " connection to https://login.microsoftonline.com/t/oauth2/token failed for getting"
            " token from AzureAD.; requestId='60ed'",
            "fs.azure.account.oauth2.client.secret",
        ),
        (
            'Operation failed: "Server failed to authenticate the request. Make sure the value of'
            ' Authorization header is formed correctly including the signature.", 403, HEAD,'
            f" {_ABFS}?timeout=90",
            "fs.azure.account.key.ACCOUNT",
        ),
        (
            'Operation failed: "This request is not authorized to perform this operation using'
            f' this permission.", 403, HEAD, {_ABFS}?upn=false&action=getStatus&timeout=90',
            "Storage Blob Data Contributor",
        ),
        (
            'Operation failed: "This request is not authorized to perform this operation.", 403,'
            f' PUT, {_ABFS}?resource=file, AuthorizationFailure, "This request is not authorized"',
            "firewall",
        ),
        (
            f'Operation failed: "The specified filesystem does not exist.", 404, HEAD, {_ABFS}',
            "Create the container",
        ),
        (
            f'Operation failed: "Operations per second is over the account limit.", 503, PUT,'
            f' {_ABFS}, ServerBusy, "Operations per second is over the account limit."',
            "is busy",
        ),
        ("javax.net.ssl.SSLException: Unsupported or unrecognized SSL message", "speaks TLS"),
        (
            "sun.security.provider.certpath.SunCertPathBuilderException: unable to find valid"
            " certification path to requested target",
            "Java's trust store",
        ),
        ("java.security.cert.CertificateExpiredException: NotAfter", "Java's trust store"),
        ("java.net.ConnectException: Connection refused", "does not answer"),
        ("java.net.UnknownHostException: nowhere.invalid", "does not answer"),
        (
            "com.amazonaws.thirdparty.apache.http.NoHttpResponseException: 127.0.0.1:9000 failed to"
            " respond",
            "does not answer",
        ),
        ("java.net.SocketException: Connection reset", "does not answer"),
        ("java.io.IOException: disk", "Check the lake's URL"),
    ],
)
def test_each_reason_has_the_remedy_that_fits(reason: str, remedy: str) -> None:
    error = storage_error("s3a://lake cannot be accessed", reason, path="s3a://lake")
    assert remedy in (error.remedy or "")
    assert error.message.startswith("s3a://lake cannot be accessed: ")
    assert "Extended" not in error.message
    assert error.message.count("9Gj") == 0
