"""Finds the remedy for an error of the lake's storage, by the error's message."""

from __future__ import annotations

import re

from cdc.errors import LakeError

_CREDENTIALS = (
    "Set lake.hadoop.fs.s3a.access.key and lake.hadoop.fs.s3a.secret.key (by references), or"
    " AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY in the environment, or run on a machine whose"
    " role may use the bucket."
)
_OF_GOOGLE = r"GoogleJsonResponseException: "
_REMEDIES = (
    (
        r"GoogleHadoopFileSystem not found",
        "With spark.jars: provided, the cluster needs Google's gcs-connector for Hadoop 3; with"
        " bundled, Tributary fetches it.",
    ),
    (
        rf"No valid credential configuration|Error getting access token|Failed to refresh token"
        rf"|{_OF_GOOGLE}401",
        "In lake.hadoop, set fs.gs.auth.service.account.json.keyfile to the file with an account's"
        " key, or run on a machine of Google Cloud whose account may use the bucket.",
    ),
    (
        rf"{_OF_GOOGLE}403",
        "Give the account the role roles/storage.objectAdmin on the bucket.",
    ),
    # A missing object has an error of its own.
    (rf"{_OF_GOOGLE}404", "Create the bucket, or correct lake.url."),
    (
        r"S3AFileSystem not found",
        "With spark.jars: provided, the cluster needs hadoop-aws of its Hadoop's version and the"
        " AWS SDK that belongs to it; with bundled, Tributary fetches both.",
    ),
    (
        r"NoSuchBucket|UnknownStoreException|bucket does not exist",
        "Create the bucket, or correct lake.url. In another region or at another store, set"
        " lake.hadoop.fs.s3a.endpoint.",
    ),
    (r"Unable to load (AWS )?credentials|No AWS Credentials", _CREDENTIALS),
    (
        r"InvalidAccessKeyId|SignatureDoesNotMatch|InvalidToken|ExpiredToken|InvalidClientTokenId",
        f"The store does not accept the credentials. {_CREDENTIALS}",
    ),
    (
        r"AccessDenied|AllAccessDisabled|Status Code: 403",
        "Allow s3:ListBucket, s3:GetBucketLocation and s3:AbortMultipartUpload on the bucket, and"
        " s3:GetObject, s3:PutObject and s3:DeleteObject below the lake's folder; with SSE-KMS also"
        " kms:GenerateDataKey and kms:Decrypt on the key.",
    ),
    (
        rf"SlowDown|Status Code: 503|ThrottlingException|{_OF_GOOGLE}(429|503)",
        "The store is busy. Run again later, or lower spark.parallel_tables.",
    ),
    (
        r"PermanentRedirect|AuthorizationHeaderMalformed|Status Code: 301",
        "The bucket is in another region: set lake.hadoop.fs.s3a.endpoint.region, or"
        " lake.hadoop.fs.s3a.endpoint to that region's.",
    ),
    (
        r"SSLException|SSLHandshakeException|PKIX path|CertPathBuilderException"
        r"|java\.security\.cert\.|InvalidAlgorithmParameterException",
        "Check whether the endpoint speaks TLS: for one that does not, write http:// in"
        " lake.hadoop.fs.s3a.endpoint. A certificate of your own has to be in Java's trust store"
        " (javax.net.ssl.trustStore in spark.driver.extraJavaOptions and in the executors'), of the"
        " type JKS, which Java reads without a password.",
    ),
    (
        r"ConnectException|ConnectTimeoutException|UnknownHostException|SocketTimeoutException"
        r"|NoRouteToHostException|Connection refused",
        "The store does not answer. Check that it runs, and lake.url, the endpoint in"
        " lake.hadoop, the proxy and the network; then run again.",
    ),
)
_OTHERWISE = "Check the lake's URL, its credentials (lake.hadoop) and its permissions."


def storage_remedy(reason: str) -> str:
    """Return the remedy for an error of the lake's file system.

    Args:
        reason: The message of the Java exception.
    """
    return known_remedy(reason) or _OTHERWISE


def known_remedy(reason: str) -> str | None:
    """Return the remedy for an error of the lake's file system; None for an unknown error.

    Args:
        reason: The message of the Java exception.
    """
    return next((remedy for pattern, remedy in _REMEDIES if re.search(pattern, reason)), None)


def storage_error(what: str, reason: str, *, path: str) -> LakeError:
    """Return the error for a file or folder of the lake that cannot be used.

    Args:
        what: Beginning of the error message, for example ``/lake/orders cannot be accessed``.
        reason: The message of the Java exception.
        path: Path of the file or folder.
    """
    # A store adds two identifiers of the request to its answer, the second one twice.
    short = re.sub(r", S3 Extended Request ID: \S+$|; S3 Extended Request ID: [^;)]+", "", reason)
    return LakeError(f"{what}: {short}", remedy=storage_remedy(reason), path=path)
